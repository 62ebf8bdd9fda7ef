"""Pictures as Qwen2.5-VL reads them: resized, normalized and cut into patches, on the host.

Pixel by pixel what transformers' `Qwen2VLImageProcessorPil` makes: bicubic by Pillow, in 8 bits.
The processor of torchvision gives slightly other pixels.

Shape letters: P patches of a picture or a bucket, F values of a patch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image, UnidentifiedImageError

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.qwen_vl.model import Pictures
from tumorchain_jax.models.qwen_vl.plan import MERGE, Grid, Plan, bucket_for, plan
from tumorchain_jax.models.qwen_vl.tower import CHANNELS, FRAMES, TowerConfig

LONGEST = 200
"""Sides may differ by this factor at most."""


@dataclass(frozen=True)
class PictureConfig:
    """How pictures are prepared; the defaults are those that Qwen2.5-VL was released with.

    Attributes:
        min_pixels, max_pixels: of a picture after it is resized.
        mean, std: of each colour, of values from 0 to 1.
    """

    min_pixels: int = 3136
    max_pixels: int = 12_845_056
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)


def read_picture_config(path: Path, fields: Mapping[str, Any]) -> PictureConfig:
    """Limits and colours from a `preprocessor_config.json`, in its older or newer layout.

    Raises:
        InputError: a field is missing or is not what it must be.
    """
    size: Any = fields.get("size")
    size = size if isinstance(size, Mapping) else {}
    named: dict[str, Any] = {
        "min_pixels": fields.get("min_pixels", size.get("shortest_edge")),
        "max_pixels": fields.get("max_pixels", size.get("longest_edge")),
    }
    for field, pixels in named.items():
        if type(pixels) is not int or pixels < 1:
            raise InputError(path, field, repr(pixels)[:80], "pixels", "complete the file")
    colours: list[Any] = []
    for field in ("image_mean", "image_std"):
        value: Any = fields.get(field)
        numbers = isinstance(value, list) and all(type(n) in (int, float) for n in value)
        if not numbers or len(value) != CHANNELS or (field == "image_std" and min(value) <= 0):
            raise InputError(path, field, repr(value)[:80], "three numbers", "complete the file")
        colours.append(tuple(value))
    return PictureConfig(named["min_pixels"], named["max_pixels"], *colours)


def preprocessor_config(config: PictureConfig, tower: TowerConfig) -> dict[str, Any]:
    """A `preprocessor_config.json` that transformers opens."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "min_pixels": config.min_pixels,
        "max_pixels": config.max_pixels,
        "size": {"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels},
        "image_mean": list(config.mean),
        "image_std": list(config.std),
        "patch_size": tower.patch_size,
        "merge_size": MERGE,
        "temporal_patch_size": FRAMES,
    }


def resized(height: int, width: int, factor: int, config: PictureConfig) -> tuple[int, int]:
    """The size that a picture is brought to: multiples of `factor`, about the same aspect.

    Halves are rounded to even numbers, as Python does.

    Raises:
        InputError: one side is more than 200 times the other.
    """
    if max(height, width) > LONGEST * min(height, width):
        expected, hint = f"sides that differ {LONGEST}-fold at most", "crop it"
        raise InputError("picture", "size", f"{height} x {width} pixels", expected, hint)
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > config.max_pixels:
        beta = math.sqrt(height * width / config.max_pixels)
        rows, columns = (
            max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)
        )
    elif rows * columns < config.min_pixels:
        beta = math.sqrt(config.min_pixels / (height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def open_picture(path: Path, decode: bool = True) -> Image.Image:
    """Read a picture file.

    Args:
        decode: its pixels too, not its header alone.

    Raises:
        InputError: it cannot be read, or has several frames, more than 8 bits or a transparent
            background; or, once decoded, it is turned by its EXIF tag.
    """
    expected, hint = "a picture of 8 bits, such as a PNG", "convert it"
    try:
        with Image.open(path) as picture:
            if decode:
                picture.load()
            frames = getattr(picture, "n_frames", 1)
            is_turned = decode and picture.getexif().get(0x0112, 1) != 1
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)[:80]
        raise InputError(path, "picture", found, expected, hint) from error
    if picture.mode not in ("1", "L", "P", "RGB"):
        raise InputError(path, "mode", picture.mode, expected, hint)
    if frames > 1:
        raise InputError(path, "frames", str(frames), "one", hint)
    if is_turned:
        raise InputError(path, "EXIF", "turned", "a picture that is upright as stored", hint)
    return picture


def grid_of(height: int, width: int, tower: TowerConfig, config: PictureConfig) -> Grid:
    """The grid of patches that a picture of this size is cut into.

    Raises:
        InputError: no picture has this shape.
    """
    rows, columns = resized(height, width, tower.patch_size * MERGE, config)
    return rows // tower.patch_size, columns // tower.patch_size


def patches_of(
    picture: Image.Image, tower: TowerConfig, config: PictureConfig
) -> tuple[Float[np.ndarray, "P F"], Grid]:
    """The patches of one picture in merge-group order, and the grid that they are of.

    Raises:
        InputError: no picture has this shape.
    """
    side = tower.patch_size
    rows, columns = grid_of(picture.height, picture.width, tower, config)
    size = (columns * side, rows * side)
    picture = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    # In the reference's order and precision: float64 times 1/255, then float32.
    values: Any = (np.asarray(picture).astype(np.float64) * (1 / 255)).astype(np.float32)
    values = (values - np.array(config.mean, np.float32)) / np.array(config.std, np.float32)
    cut = values.reshape(rows // MERGE, MERGE, side, columns // MERGE, MERGE, side, CHANNELS)
    cut = cut.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    cut = np.broadcast_to(cut, (*cut.shape[:5], FRAMES, side, side))
    return cut.reshape(rows * columns, tower.patch_values), (rows, columns)


def bucketed(
    rows: Sequence[Sequence[tuple[Float[np.ndarray, "_ F"], Grid]]],
    tower: TowerConfig,
    patches: int | None = None,
) -> Pictures:
    """The buckets of a batch.

    Args:
        rows: what `patches_of` made of the pictures of each row.
        patches: of a bucket; None for the smallest that holds the pictures of any row.

    Raises:
        InputError: a row's pictures do not fit.
    """
    grids = [[grid for _, grid in row] for row in rows]
    size = patches or max(bucket_for(each) for each in grids)
    plans = [plan(each, size, tower.window) for each in grids]
    values = np.zeros((len(rows), size, tower.patch_values), np.float32)
    for bucket, row in zip(values, rows, strict=True):
        if row:
            joined = np.concatenate([each for each, _ in row])
            bucket[: len(joined)] = joined
    return Pictures(values, *Plan(*(np.stack(each) for each in zip(*plans, strict=True))))
