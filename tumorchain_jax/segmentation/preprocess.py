"""Make the network's input from a scan as nnU-Net does, and put labels back onto the scan.

The order is nnU-Net's (nnunetv2/preprocessing/preprocessors/default_preprocessor.py): axes z, y, x
as SimpleITK has them, `transpose_forward`, crop to the voxels that are not 0, normalise, resample.

Shape letters: I J K a scan's voxels, D H W those of its crop (after `transpose_forward`), E F G
those of the network's grid.
"""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.plans import Plan
from tumorchain_jax.segmentation.resample import (
    Resize,
    Shape,
    plan_resize,
    resample,
    resampled_shape,
)

SMALLEST_STD = 1e-8


@dataclass(frozen=True)
class Grids:
    """Geometry of the network's input within a scan.

    Attributes:
        box: of the crop, along the transposed scan's axes.
        shape: voxels of the crop, `[D, H, W]`.
        spacing: mm, likewise.
        network_shape: `[E, F, G]`, at the plan's spacing.
    """

    box: tuple[slice, slice, slice]
    shape: Shape
    spacing: tuple[float, float, float]
    network_shape: Shape


def find_grids(scan: Volume, plan: Plan) -> Grids:
    """Compute the geometry of a scan's preprocessing.

    Raises:
        InputError: the scan has a voxel that is not finite, is 0 everywhere, or is thinner than
            half a voxel of the plan's spacing.
    """
    if not (np.isfinite(scan.voxels.min()) and np.isfinite(scan.voxels.max())):
        found, hint = "NaN or infinite", "replace those voxels"
        raise InputError(scan.source, "voxels", found, "finite numbers", hint)
    voxels = _transposed(scan.voxels, plan)
    z, y, x = scan.spacing[::-1]
    d, h, w = (((z, y, x)[axis]) for axis in plan.transpose_forward)
    box = _nonzero_box(voxels)
    if box is None:
        expected, hint = "some that are not", "hand over another scan"
        raise InputError(scan.source, "voxels", "all 0", expected, hint)
    D, H, W = (part.stop - part.start for part in box)
    network_shape = resampled_shape((D, H, W), (d, h, w), plan.spacing)
    if min(network_shape) == 0:
        found = f"{D} x {H} x {W} voxels of {d:g} x {h:g} x {w:g} mm"
        expected = "half of {:g} x {:g} x {:g} mm or more".format(*plan.spacing)
        raise InputError(scan.source, "size", found, expected, "hand over a thicker scan")
    return Grids(box, (D, H, W), (d, h, w), network_shape)


def preprocess(scan: Volume, plan: Plan, grids: Grids) -> np.ndarray:
    """Make the network's input, float32 `[E, F, G]`.

    Raises:
        InputError: the plan normalises colours, and the voxels are none.
    """
    spline, ours = plan.resampling.image, plan.spacing
    resize = plan_resize(spline, grids.shape, grids.network_shape, grids.spacing, ours)
    # No other reference to the crop: it is freed while it is resampled.
    return resample(_normalized(scan, plan, grids), resize)


def resize_back(plan: Plan, grids: Grids) -> Resize:
    """Plan the resampling of logits from the network's grid to the crop."""
    spline, ours = plan.resampling.logits, plan.spacing
    return plan_resize(spline, grids.network_shape, grids.shape, ours, grids.spacing)


def restore(labels: np.ndarray, scan: Volume, plan: Plan, grids: Grids) -> Volume:
    """Put labels of the crop `[D, H, W]` onto the scan's own grid."""
    whole = np.zeros(scan.shape, labels.dtype)
    _transposed(whole, plan)[grids.box] = labels
    return Volume(whole, scan.affine, scan.source)


def _transposed(voxels: np.ndarray, plan: Plan) -> np.ndarray:
    """A view of voxels `[I, J, K]` with the network's axes."""
    return voxels.T.transpose(plan.transpose_forward)


def _nonzero_box(voxels: np.ndarray) -> tuple[slice, slice, slice] | None:
    """The box around all voxels that are not 0 (nnU-Net fills holes first, with the same box)."""
    if not voxels.any():
        return None
    d, h, w = (
        _span(np.flatnonzero(voxels.any(axis=across))) for across in ((1, 2), (0, 2), (0, 1))
    )
    return d, h, w


def _span(used: np.ndarray) -> slice:
    return slice(int(used[0]), int(used[-1]) + 1)


def _normalized(scan: Volume, plan: Plan, grids: Grids) -> np.ndarray:
    """Normalize the crop by the plan's scheme (nnunetv2/preprocessing/normalization), float32."""
    image = np.array(_transposed(scan.voxels, plan)[grids.box], np.float32, order="C")
    match plan.normalization[0]:
        case "CTNormalization":
            intensity = plan.intensities[0]
            np.clip(image, intensity.percentile_00_5, intensity.percentile_99_5, out=image)
            image -= intensity.mean
            image /= max(intensity.std, SMALLEST_STD)
        case "ZScoreNormalization":
            # Voxels outside stay 0.
            masked = plan.use_mask_for_norm[0]
            inside = ndimage.binary_fill_holes(image != 0) if masked else np.s_[:]
            values = image[inside]
            image[inside] = (values - values.mean()) / max(values.std(), SMALLEST_STD)
        case "RescaleTo01Normalization":
            image -= image.min()
            image /= max(image.max(), SMALLEST_STD)
        case "RGBTo01Normalization":
            if image.min() < 0 or image.max() > 255:
                found, hint = f"{image.min():g} to {image.max():g}", "use a model for such scans"
                raise InputError(scan.source, "voxels", found, "0 to 255", hint)
            image /= 255
        case "NoNormalization":
            pass
    return image
