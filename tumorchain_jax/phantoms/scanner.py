"""Turn an ideal image into a scan: blur, beam hardening, noise, padding and clipping.

The ranges, and what they were checked against, are in phantoms/README.md.
"""

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.objects import paint_metal, paint_surroundings

BLUR_VOXELS, SLICE_BLUR = (0.3, 0.7), (0.2, 0.6)
NOISE_HU, NOISE_MEDIAN_HU, NOISE_SPREAD = (3.0, 45.0), 12.0, 0.55
KERNELS, KERNEL_ODDS = ("sharp", "standard", "smooth"), (0.25, 0.5, 0.25)
# Sigma (voxels) of the noise in the slice, and how much of a wider blur is taken off the image.
KERNEL_NOISE = {"sharp": 0.0, "standard": 0.45, "smooth": 0.9}
SHARPENING = {"sharp": (0.25, 0.6), "standard": (0.0, 0.15), "smooth": (0.0, 0.0)}
SHIFT_HU, HARDENING_HU = 4.0, (0.0, 14.0)
PADDING_HU, PADDING_SHARE = (-1024.0, -2000.0, -3024.0), 0.35
CLIPPED_SHARE = 0.7  # of the scans that have no padding
DENSE_BONE_MM = 40.0  # of bone on each side of a beam, for the full band


def scan(
    rng: np.random.Generator, image: Float[np.ndarray, "X Y Z"], anatomy: Anatomy
) -> Float[np.ndarray, "X Y Z"]:
    """Scan an ideal image; whole HU, float32. `image` is overwritten."""
    spacing = anatomy.affine.diagonal()[:3]
    body = anatomy.tissue != Tissue.OUTSIDE
    paint_surroundings(rng, image, body, spacing, anatomy.prone)
    metal = paint_metal(rng, image, anatomy)
    bands, loss = _beam_hardening(image, spacing)
    kernel = str(rng.choice(KERNELS, p=KERNEL_ODDS))
    blur, through = rng.uniform(*BLUR_VOXELS), rng.uniform(*SLICE_BLUR)
    image = ndimage.gaussian_filter(image, (blur, blur, through), truncate=2.5)
    amount = rng.uniform(*SHARPENING[kernel])
    if amount:  # the ringing of a sharp kernel
        image += np.float32(amount) * (image - ndimage.uniform_filter(image, (3, 3, 1)))
    image -= np.float32(rng.uniform(*HARDENING_HU)) * bands
    if metal is not None:
        image += metal
    image += _noise(rng, image.shape, spacing, kernel, loss)
    image += np.float32(rng.normal(0, SHIFT_HU))
    np.rint(image, out=image)
    return _field_of_view(rng, image, spacing)


def _beam_hardening(image: np.ndarray, spacing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measure how far beams across the body are hardened by bone.

    Returns:
        0 to 1 where dense bone lies on both sides, as between the hips; and the share (0 to 1,
        `[1, Y, Z]`) of photons lost along the whole line.
    """
    bone = (image > 250).astype(np.float32) * np.float32(spacing[0] / DENSE_BONE_MM)
    left = np.cumsum(bone, axis=0)
    total = left[-1:].copy()
    band = np.minimum(np.minimum(left, total - left), 1)
    return ndimage.uniform_filter(band, (3, 3, 1)), np.minimum(total / 2, 1)


def _noise(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    spacing: np.ndarray,
    kernel: str,
    loss: np.ndarray,
) -> np.ndarray:
    """Draw noise (HU) of a kernel, stronger in the middle of the body and where photons are few."""
    level = float(np.exp(rng.normal(np.log(NOISE_MEDIAN_HU), NOISE_SPREAD)).clip(*NOISE_HU))
    noise = rng.standard_normal(shape, dtype=np.float32)
    sigma = KERNEL_NOISE[kernel]
    if sigma:
        noise = ndimage.gaussian_filter(noise, (sigma, sigma, 0), truncate=2.5)
    else:  # high frequencies alone
        noise -= np.float32(0.8) * ndimage.uniform_filter(noise, (3, 3, 1))
    noise *= np.float32(level / noise[::8].std())
    if rng.random() < 0.5:  # streaks along the lines that few photons pass
        along = ndimage.uniform_filter1d(noise, 15, axis=0)
        noise += np.float32(rng.uniform(0.5, 2.5)) * loss * along
    x, y = (np.linspace(-1, 1, n, dtype=np.float32) for n in shape[:2])
    middle = 1.15 - 0.4 * np.minimum(x[:, None] ** 2 + y[None] ** 2, 1)
    noise *= middle[..., None]
    return noise


def _field_of_view(rng: np.random.Generator, image: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    """Clip the image, and pad it outside the circle that the scanner reconstructs."""
    padding = rng.choice(PADDING_HU) if rng.random() < PADDING_SHARE else None
    lowest = -1024.0 if padding is not None or rng.random() < CLIPPED_SHARE else -1100.0
    image = np.clip(image, lowest, 3071.0, out=image)
    if padding is not None:
        x, y = (
            (np.arange(n, dtype=np.float32) - (n - 1) / 2) * np.float32(s)
            for n, s in zip(image.shape[:2], spacing[:2], strict=True)
        )
        radius = max(-x[0], -y[0]) * rng.uniform(0.97, 1.08)
        image[x[:, None] ** 2 + y[None] ** 2 > radius**2] = padding
    return image
