"""Crops of a scan, against scipy's and Pillow's resampling of the same voxels."""

from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import map_coordinates

from tumorchain_jax.scan.crops import (
    crop_transform,
    finest_spacing,
    jittered,
    locate,
    place,
    region_box,
    sample,
    spacing_of,
)
from tumorchain_jax.scan.preprocess import GridTransform, PreprocessConfig, window
from tumorchain_jax.scan.volume import Volume

CONFIG = PreprocessConfig(grid=(8, 16, 16))
SHAPE, SPACING = (30, 44, 40), (4.0, 2.5, 2.0)
TOLERANCE = 1e-5  # of a window from 0 to 1


def scan(flips: tuple[int, ...] = ()) -> Volume:
    """Texture without structure, stored as D to superior, H to posterior, W to left; or flipped."""
    rng = np.random.default_rng(0)
    voxels = rng.normal(40, 120, SHAPE).astype(np.float32)
    affine = np.array([[0, 0, -2.0, 50], [0, -2.5, 0, 30], [4, 0, 0, -70], [0, 0, 0, 1]])
    for axis in flips:
        voxels = np.flip(voxels, axis)
        affine[:3, 3] += affine[:3, axis] * (SHAPE[axis] - 1)
        affine[:3, axis] *= -1
    return Volume(voxels, affine)


def crop_at(first: Any, spacing: Any, grid: tuple[int, int, int]) -> GridTransform:
    """A crop whose first voxel has its centre at an index of the scan."""
    to_index = np.diag([*np.divide(spacing, SPACING), 1.0])
    to_index[:3, 3] = first
    return GridTransform(grid, axes_of_scan() @ to_index)


def axes_of_scan() -> np.ndarray:
    """The same affine, of axes to superior, posterior and the patient's left."""
    return np.array([[0, 0, -2.0, 50], [0, -2.5, 0, 30], [4, 0, 0, -70], [0, 0, 0, 1]])


@pytest.mark.parametrize("flips", [(), (0,), (1, 2)])
def test_crop_finer_than_the_scan_is_scipys_linear_interpolation(flips: tuple[int, ...]) -> None:
    ct, crop = scan(flips), crop_at((3.3, 10.2, 8.7), (1.7, 1.1, 1.1), (12, 20, 18))
    # scipy reads the voxels as they are stored, by the affine alone.
    index = np.stack(np.meshgrid(*map(np.arange, crop.grid), indexing="ij"))
    world = np.einsum("ij,jdhw->idhw", crop.to_world[:3, :3], index)
    world += crop.to_world[:3, 3].reshape(3, 1, 1, 1)
    back = np.linalg.inv(ct.affine)
    points = np.einsum("ij,jdhw->idhw", back[:3, :3], world) + back[:3, 3].reshape(3, 1, 1, 1)
    expected = map_coordinates(window(ct.voxels, CONFIG), points, order=1)
    np.testing.assert_allclose(sample(ct, crop, CONFIG), expected, atol=TOLERANCE)


def test_crop_coarser_than_the_scan_is_pillows_bilinear_resize_without_aliasing() -> None:
    ct, grid, spacing = scan(), (5, 9, 8), np.array([11.0, 6.2, 6.2])
    step = spacing / SPACING
    start = np.array([4.4, 8.1, 7.3])  # edge of the crop, in voxels of the scan
    crop = crop_at(start + step / 2 - 0.5, spacing, grid)
    (d, h, w), (stop_d, stop_h, stop_w) = start, start + step * grid
    planes = [
        np.asarray(Image.fromarray(plane).resize((8, 9), Image.BILINEAR, (w, h, stop_w, stop_h)))
        for plane in window(ct.voxels, CONFIG)
    ]
    flat = Image.fromarray(np.stack(planes).reshape(SHAPE[0], -1))
    expected = np.asarray(flat.resize((72, 5), Image.BILINEAR, (0, d, 72, stop_d))).reshape(grid)
    np.testing.assert_allclose(sample(ct, crop, CONFIG), expected, atol=TOLERANCE)


def test_crop_beyond_the_scan_is_zero() -> None:
    ct = Volume(np.full(SHAPE, 400.0, np.float32), scan().affine)
    image = sample(ct, crop_at((-4, 0, 0), SPACING, (8, 10, 10)), CONFIG)
    assert (image[:4] == 0).all()
    np.testing.assert_allclose(image[4:], 1, atol=TOLERANCE)
    far = sample(ct, crop_at((500, 0, 0), SPACING, (4, 4, 4)), CONFIG)
    assert (far == 0).all()


MODEL_GRID = GridTransform((8, 16, 16), crop_at((0, 0, 0), (15, 6, 5), (8, 16, 16)).to_world)


def test_region_box_leaves_out_a_few_stray_voxels() -> None:
    mask = np.zeros((8, 16, 16), bool)
    mask[2:6, 4:12, 3:13] = True
    expected = np.array([[2, 4, 3], [6, 12, 13]]) * [15, 6, 5]
    np.testing.assert_allclose(region_box(mask, MODEL_GRID), expected)
    mask[0, 0, 0] = True  # 1 of 321
    np.testing.assert_allclose(region_box(mask, MODEL_GRID), expected)
    assert region_box(np.zeros_like(mask), MODEL_GRID) is None


@pytest.mark.parametrize("finest", [3.0, 12.0])
def test_crop_has_the_finest_spacing_at_which_the_box_and_its_margin_fit(finest: float) -> None:
    box, margin = np.array([[30.0, 24, 15], [90, 72, 65]]), 20.0
    crop = crop_transform(MODEL_GRID, box, (16, 24, 24), (finest, finest), margin)
    needed = (60 + 40) / 16, (50 + 40) / 24, (48 + 40) / 24
    expected = max(finest, needed[0]), max(finest, *needed[1:]), max(finest, *needed[1:])
    np.testing.assert_allclose(spacing_of(crop), expected)
    # The middle of the box, from the outer corner of the first voxel, is that of the crop.
    middle = box.mean(axis=0) / spacing_of(MODEL_GRID) - 0.5
    np.testing.assert_allclose(crop.world(np.array([7.5, 11.5, 11.5])), MODEL_GRID.world(middle))


def test_finest_spacing_is_the_scans_own_for_0() -> None:
    assert finest_spacing(scan(), 0.0) == pytest.approx((4.0, 2.5))
    assert finest_spacing(scan(), 3.0) == (3.0, 3.0)


def test_place_is_the_inverse_of_locate() -> None:
    crop = crop_at((3.3, 10.2, 8.7), (1.7, 1.1, 1.1), (12, 20, 18))
    world = locate(crop, MODEL_GRID)
    back = place(world, crop.grid, MODEL_GRID)
    np.testing.assert_allclose(back.to_world, crop.to_world, atol=1e-4)
    assert world[-1] == 1
    whole = locate(MODEL_GRID, MODEL_GRID)
    np.testing.assert_allclose(whole, [15, 6, 5, 0, 0, 0, 1], atol=1e-6)


def test_jitter_is_within_its_limits() -> None:
    box, rng = np.array([[30.0, 24, 15], [90, 72, 65]]), np.random.default_rng(0)
    drawn = np.stack([jittered(box, rng, 10.0, 0.1) for _ in range(200)])
    shift = np.abs(drawn.mean(axis=1) - box.mean(axis=0))
    scale = (drawn[:, 1] - drawn[:, 0]) / (box[1] - box[0])
    assert 8 < shift.max() <= 10
    assert 0.9 <= scale.min() < 0.92
    assert 1.08 < scale.max() <= 1.1
