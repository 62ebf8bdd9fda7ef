"""Rigid registration of two CTs of one patient, by SimpleITK."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume

if TYPE_CHECKING:
    import SimpleITK

# Registered at this spacing: fine enough for a shift of a millimetre or two, and fast.
SPACING_MM = 4.0
AIR_HU, BONE_HU = -1000.0, 500.0
"""Contrast in vessels, and metal, would mislead a comparison of intensities beyond these."""
FIRST_TURN = np.deg2rad(20.0)
BINS, SAMPLED, STEPS = 48, 0.2, 100
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True)
class Registration:
    """How a prior lies in the frame of a later scan.

    Attributes:
        to_prior: float64 `[4, 4]`, a point of the later scan in mm RAS+ -> the same place of the
            body in the prior, in mm RAS+; a rotation and a shift.
        similarity: mutual information of the two where they overlap, in nats; 0 for none.
        degrees: of the rotation.
        shift_mm: of the scan's centre.
    """

    to_prior: np.ndarray
    similarity: float
    degrees: float
    shift_mm: float


def check_library() -> None:
    """Refuse to register where SimpleITK is not installed.

    Raises:
        InputError: it says what to install.
    """
    if find_spec("SimpleITK") is None:
        hint = "pip install 'tumorchain-jax[compare]'"
        raise InputError("--compare", "package", "no SimpleITK", "the extra `compare`", hint)


def register(scan: Volume, prior: Volume) -> Registration:
    """Find the rigid motion that brings a prior onto a scan: mutual information, three levels.

    Args:
        scan, prior: CTs in HU.
    """
    import SimpleITK as sitk

    fixed, moving = _image(scan), _image(prior)
    start = sitk.CenteredTransformInitializer(
        fixed,
        moving,
        sitk.Euler3DTransform(),
        sitk.CenteredTransformInitializerFilter.MOMENTS,
    )
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(BINS)
    method.SetMetricSamplingStrategy(method.REGULAR)
    method.SetMetricSamplingPercentage(SAMPLED)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(2.0, 1e-3, STEPS)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2.0, 1.0, 0.0])
    method.SetInitialTransform(start, inPlace=False)
    found = sitk.Euler3DTransform(
        sitk.CompositeTransform(method.Execute(fixed, moving)).GetBackTransform()
    )
    rotation = np.array(found.GetMatrix()).reshape(3, 3)
    centre = np.array(found.GetCenter())
    in_lps = np.eye(4)
    in_lps[:3, :3] = rotation
    in_lps[:3, 3] = centre + np.array(found.GetTranslation()) - rotation @ centre
    to_prior = LPS @ in_lps @ LPS
    middle = scan.affine @ [*(np.array(scan.shape) - 1) / 2, 1]
    moved = to_prior @ middle - middle
    turn = np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1, 1))
    return Registration(
        to_prior,
        max(0.0, -float(method.GetMetricValue())),
        float(np.rad2deg(turn)),
        float(np.linalg.norm(moved[:3])),
    )


def resample_onto(moving: Volume, fixed: Volume, to_moving: np.ndarray, fill: float) -> np.ndarray:
    """Resample a volume onto another's voxels: integers take the nearest voxel, floats linearly.

    Args:
        to_moving: float64 `[4, 4]`, a point of `fixed` in mm -> the same in `moving`.
        fill: value outside of `moving`.

    Returns:
        the values at the voxels of `fixed`, of the dtype of `moving`.
    """
    from scipy import ndimage

    index = np.linalg.inv(moving.affine) @ to_moving @ fixed.affine
    order = 0 if moving.voxels.dtype.kind in "iu" else 1
    return ndimage.affine_transform(
        moving.voxels, index[:3, :3], index[:3, 3], fixed.shape, order=order, cval=fill
    )


def _image(volume: Volume) -> "SimpleITK.Image":
    """A CT as SimpleITK has it, at `SPACING_MM` or coarser, clipped."""
    import SimpleITK as sitk

    step = np.maximum(1, np.floor(SPACING_MM / np.array(volume.spacing) + 0.01)).astype(int)
    i, j, k = step.tolist()
    hu = np.clip(volume.voxels[::i, ::j, ::k], AIR_HU, BONE_HU).astype(np.float32)
    image = sitk.GetImageFromArray(np.ascontiguousarray(hu.transpose(2, 1, 0)))
    lps = LPS @ volume.affine
    spacing = np.array(volume.spacing)
    image.SetSpacing((spacing * step).tolist())
    image.SetDirection((lps[:3, :3] / spacing).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    return image
