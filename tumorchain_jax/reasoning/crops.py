"""Cut crops out of a scan, around organs in its mask, for models with `roi_source: crop`.

Shape letters: C crops, D H W voxels of one, which are as many as those of the model's grid.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from tumorchain_jax.anatomy.organs import ORGANS, merge_labels
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.tumorchain.crops import WORLD, CropConfig
from tumorchain_jax.scan import crops as geometry
from tumorchain_jax.scan.preprocess import GridTransform, PreprocessConfig, resample_labels
from tumorchain_jax.scan.volume import Volume

SHIFT_MM, SCALE = 10.0, 0.1
"""Largest jitter of a crop's box in training, because in use the mask is a segmenter's."""
LUNGS = "lungs"


class ScanCrops(NamedTuple):
    """The crops of a scan.

    Attributes:
        images: in [0, 1]; 0 where there is no crop.
        labels: merged organ labels.
        world: where each crop is, see `models/tumorchain/crops.py: WORLD`.
        transforms: the same; None where the mask does not show the region.
    """

    images: Float[np.ndarray, "C D H W"]
    labels: UInt8[np.ndarray, "C D H W"]
    world: Float[np.ndarray, "C 7"]
    transforms: tuple[GridTransform | None, ...]


@cache
def region_labels(region: str) -> tuple[int, ...]:
    """Merged labels of a region.

    Raises:
        InputError: no such region.
    """
    if region == LUNGS:
        return tuple(label for label, name in enumerate(ORGANS) if name.startswith("lung_"))
    if region in ORGANS[1:]:
        return (ORGANS.index(region),)
    expected = f"{LUNGS}, or an organ: {', '.join(ORGANS[1:])}"
    raise InputError("config", "model.crop.regions", region, expected, "name one of these")


def place_crops(
    ct: Volume,
    merged: UInt8[np.ndarray, "D H W"],
    transform: GridTransform,
    config: CropConfig,
    rng: np.random.Generator | None = None,
) -> tuple[GridTransform | None, ...]:
    """Place the crop of each region around its mask.

    Args:
        merged: merged organ labels on the model's grid, which lies where `transform` says.
        rng: draws a jitter for training.

    Returns:
        where each crop lies; None for a region of which the mask shows nothing.
    """
    finest = geometry.finest_spacing(ct, config.spacing_mm)

    def around(region: str) -> GridTransform | None:
        box = geometry.region_box(np.isin(merged, region_labels(region)), transform)
        if box is None:
            return None
        if rng is not None:
            box = geometry.jittered(box, rng, SHIFT_MM, SCALE)
        return geometry.crop_transform(transform, box, transform.grid, finest, config.margin_mm)

    return tuple(around(region) for region in config.regions)


def cut_crops(
    ct: Volume,
    labels: Volume,
    transform: GridTransform,
    transforms: tuple[GridTransform | None, ...],
    preprocess: PreprocessConfig,
) -> ScanCrops:
    """Resample a scan and its label map onto crops.

    Args:
        labels: TotalSegmentator v2 `total` ids on the CT's voxels.
        transform: of the model's grid.
        transforms: of the crops, as from `place_crops`.
    """
    shape = (len(transforms), *transform.grid)
    images, merged = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    for number, crop in enumerate(transforms):
        if crop is not None:
            images[number] = geometry.sample(ct, crop, preprocess)
            merged[number] = merge_labels(resample_labels(labels, crop))
    return ScanCrops(images, merged, crop_world(transform, transforms), transforms)


def crop_world(
    scan: GridTransform, crops: tuple[GridTransform | None, ...]
) -> Float[np.ndarray, "C 7"]:
    """Describe the place of each crop by numbers; where there is none, spacing 1 and zeros."""
    nowhere = np.array([1.0] * 3 + [0.0] * (WORLD - 3), np.float32)
    return np.stack([nowhere if crop is None else geometry.locate(crop, scan) for crop in crops])
