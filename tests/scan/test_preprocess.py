import json
from itertools import permutations, product

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.preprocess import (
    GridTransform,
    PreprocessConfig,
    preprocess,
    resample_labels,
)
from tumorchain_jax.scan.volume import Volume

CONFIG = PreprocessConfig(grid=(16, 48, 40))
AIR, TISSUE, BONE = -1000.0, 40.0, 700.0


def patient(shape=(60, 44, 30), spacing=(3.0, 4.0, 5.0), origin=(-90.0, -70.0, -40.0)):
    """An RAS+ scan: a soft-tissue ellipsoid in air with texture, and its affine."""
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = origin
    i, j, k = np.meshgrid(*(np.linspace(-1.2, 1.2, size) for size in shape), indexing="ij")
    texture = 60 * np.sin(7 * i + 2 * j) + 50 * np.cos(5 * j - 3 * k)
    voxels = np.where(i**2 + j**2 + k**2 < 1, TISSUE + texture, AIR).astype(np.float32)
    return Volume(voxels, affine)


def reordered(volume, axes, flips):
    """The same patient stored with other axes: the affine follows, written out by hand."""
    change = np.zeros((4, 4))
    change[3, 3] = 1
    for new, old in enumerate(axes):
        change[old, new] = -1 if flips[new] else 1
        change[old, 3] = volume.shape[old] - 1 if flips[new] else 0
    voxels = volume.voxels.transpose(axes)
    voxels = voxels[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
    return Volume(voxels, volume.affine @ change)


def with_cube(volume, centre_mm, value, half_mm=9.0):
    """The volume with a cube of `value` around a point of the patient."""
    index = np.stack(np.meshgrid(*(np.arange(n) for n in volume.shape), indexing="ij"), -1)
    mm = index @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    inside = (np.abs(mm - np.asarray(centre_mm)) <= half_mm).all(-1)
    return Volume(np.where(inside, np.float32(value), volume.voxels), volume.affine)


def dense_resize(volume, shape):
    """Reference: linear interpolation at each output cell's centre, one line of voxels a time."""
    for axis, size in enumerate(shape):
        length = volume.shape[axis]
        centres = (np.arange(size) + 0.5) * length / size - 0.5
        volume = np.apply_along_axis(
            lambda line, at=centres, n=length: np.interp(at, np.arange(n), line), axis, volume
        )
    return volume


@pytest.mark.parametrize("oblique", [False, True])
@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_storage_order_changes_nothing(axes, oblique):
    ct = patient()
    if oblique:
        turn = np.eye(4)
        turn[:3, :3] = Rotation.from_euler("zx", [15, -10], degrees=True).as_matrix()
        ct = Volume(ct.voxels, turn @ ct.affine)
    expected = preprocess(ct, CONFIG)
    for flips in product([False, True], repeat=3):
        got = preprocess(reordered(ct, axes, flips), CONFIG)
        np.testing.assert_array_equal(got.image, expected.image)
        np.testing.assert_allclose(
            got.transform.to_world, expected.transform.to_world, rtol=0, atol=1e-9
        )


def test_resize_equals_a_dense_reference():
    ct = patient(shape=(37, 29, 21), spacing=(3.0, 3.0, 3.0))
    config = PreprocessConfig(grid=(32, 24, 40))
    ct.voxels[:] = np.maximum(ct.voxels, -400)  # all is body: no crop
    prepared = preprocess(ct, config)
    windowed = np.clip((ct.voxels.astype(np.float64) + 160) / 400, 0, 1)
    canonical = windowed.transpose(2, 1, 0)[:, ::-1, ::-1]  # RAS+ -> superior, posterior, left
    padded = np.pad(canonical, ((0, 0), (4, 4), (0, 0)))
    np.testing.assert_allclose(prepared.image, dense_resize(padded, config.grid), atol=2e-6)
    assert prepared.parameters["padding_voxels"] == [[0, 0], [4, 4], [0, 0]]


@pytest.mark.parametrize(
    ("offset", "axis", "upper"),
    [
        ((0, 0, 45), 0, True),  # superior: high D
        ((0, 0, -45), 0, False),
        ((0, -45, 0), 1, True),  # posterior: high H
        ((0, 45, 0), 1, False),
        ((-45, 0, 0), 2, True),  # patient's left: high W
        ((45, 0, 0), 2, False),
    ],
)
def test_a_bright_cube_lands_where_the_patient_has_it(offset, axis, upper):
    plain = patient()
    middle = plain.affine[:3, :3] @ ((np.array(plain.shape) - 1) / 2) + plain.affine[:3, 3]
    centre = middle + offset
    prepared = preprocess(with_cube(plain, centre, BONE), PreprocessConfig(grid=(40, 64, 64)))
    bright = np.argwhere(prepared.image > 0.999).mean(0)
    np.testing.assert_allclose(bright, grid_index(prepared.transform, centre), atol=1.0)
    assert (bright[axis] > prepared.image.shape[axis] / 2) == upper
    others = [a for a in range(3) if a != axis]
    np.testing.assert_allclose(bright[others], (np.array([40, 64, 64])[others] - 1) / 2, atol=1.5)


@pytest.mark.parametrize(("hu", "value"), [(-160, 0.0), (-60, 0.25), (40, 0.5), (240, 1.0)])
def test_window(hu, value):
    ct = Volume(np.full((16, 16, 16), hu, np.int16), np.eye(4))
    np.testing.assert_allclose(preprocess(ct, CONFIG).image, value, atol=1e-6)


def test_out_of_window_is_clipped():
    ct = patient()
    ct.voxels[20:40, 15:30, 10:20] = 3000
    ct.voxels[:3] = -3024
    image = preprocess(ct, CONFIG).image
    assert image.dtype == np.float32
    assert image.min() == 0.0
    assert image.max() == 1.0


def test_crop_and_padding_are_the_body_and_a_square():
    ct = with_cube(patient(shape=(90, 80, 40)), (60.0, -10.0, 40.0), TISSUE, half_mm=30.0)
    ct = with_cube(Volume(np.where(ct.voxels > 0, ct.voxels, AIR), ct.affine), (0, 0, 0), AIR, 0)
    prepared = preprocess(ct, PreprocessConfig(grid=(16, 64, 64)))
    spacing = np.linalg.norm(prepared.transform.to_world[:3, :3], axis=0)
    assert spacing[1] == pytest.approx(spacing[2], rel=0.05)  # a square in mm, to half a voxel
    body = np.argwhere(ct.voxels > -500)
    low, high = (ct.affine[:3, :3] @ at + ct.affine[:3, 3] for at in (body.min(0), body.max(0)))
    crop = np.array(prepared.parameters["crop_mm"])
    assert (crop[:3] <= low - ct.spacing).all()
    assert (crop[3:] >= high + ct.spacing).all()
    assert (low - crop[:3] < 20).all()
    assert (crop[3:] - high < 20).all()
    padding = prepared.parameters["padding_voxels"]
    assert padding[0] == [0, 0]
    assert all(abs(before - after) <= 1 for before, after in padding)


def test_a_far_table_is_cropped_away():
    ct = patient(shape=(60, 80, 30))
    ct.voxels[:, :2, :] = 0.0  # a plate well behind the body
    expected = preprocess(patient(shape=(60, 80, 30)), CONFIG)
    np.testing.assert_array_equal(preprocess(ct, CONFIG).image, expected.image)


def test_no_body_keeps_the_whole_scan_and_says_so():
    ct = Volume(np.full((20, 20, 10), AIR, np.float32), np.diag([2.0, 2.0, 4.0, 1.0]))
    prepared = preprocess(ct, CONFIG)
    assert prepared.parameters["crop_mm"] == [-1.0, -1.0, -2.0, 39.0, 39.0, 38.0]
    assert len(prepared.warnings) == 1
    assert preprocess(patient(), CONFIG).warnings == ()


def grid_index(transform, points):
    """The inverse of `GridTransform.world`."""
    to_index = np.linalg.inv(transform.to_world)
    return np.asarray(points) @ to_index[:3, :3].T + to_index[:3, 3]


@pytest.mark.parametrize("spacing", [(0.7, 0.7, 5.0), (3.0, 3.0, 1.0), (1.0, 2.5, 8.0)])
def test_boxes_survive_the_way_to_mm_and_back(spacing):
    transform = preprocess(patient(spacing=spacing), CONFIG).transform
    box = (0.1, 0.25, 0.3, 0.4, 0.5, 0.95)
    low, high = np.array(transform.box_to_mm(box)).reshape(2, 3)
    ends = np.array([grid_index(transform, low), grid_index(transform, high)])
    back = np.sort((ends + 0.5) / CONFIG.grid, axis=0).ravel()
    np.testing.assert_allclose(back, box, atol=1e-12)
    mm = transform.box_to_mm((0, 0, 0, 1, 1, 1))
    size = np.array(mm[3:]) - mm[:3]
    cell = np.linalg.norm(transform.to_world[:3, :3], axis=0)
    np.testing.assert_allclose(size, (cell * CONFIG.grid)[::-1])
    points = np.random.default_rng(0).uniform(-100, 100, (5, 4, 3))
    np.testing.assert_allclose(transform.world(grid_index(transform, points)), points, atol=1e-9)


def test_a_box_found_in_the_grid_is_the_box_in_the_patient():
    ct = patient(shape=(80, 80, 40))
    ct.voxels[ct.voxels > -500] = TISSUE
    centre = np.array([20.0, 80.0, 50.0])
    prepared = preprocess(with_cube(ct, centre, BONE, half_mm=20.0), PreprocessConfig())
    bright = np.argwhere(prepared.image > 0.75)
    box = np.concatenate([bright.min(0), bright.max(0) + 1]) / np.tile(prepared.image.shape, 2)
    mm = np.array(prepared.transform.box_to_mm(box))
    # Within one voxel of the scan, half of which is where the cube's voxels end.
    error = np.abs(mm - [*(centre - 20), *(centre + 20)])
    assert (error <= np.tile(np.array(ct.spacing), 2)).all()


def test_oblique_boxes_enclose():
    angle = np.deg2rad(20)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    transform = GridTransform((8, 8, 8), turn @ np.diag([1.0, 2.0, 3.0, 1.0]))
    box = (0.25, 0.25, 0.25, 0.75, 0.75, 0.75)
    low, high = np.array(transform.box_to_mm(box)).reshape(2, 3)
    corners = transform.world(np.array(list(product((0.25, 0.75), repeat=3))) * 8 - 0.5)
    np.testing.assert_allclose(corners.min(0), low)
    np.testing.assert_allclose(corners.max(0), high)


@pytest.mark.parametrize("flips", list(product([False, True], repeat=3)))
def test_labels_stay_on_the_image(flips):
    ct = with_cube(patient(), (30.0, 40.0, 50.0), BONE, half_mm=15.0)
    labels = Volume((ct.voxels == BONE).astype(np.int32) * 51, ct.affine)
    ct, labels = (reordered(volume, (2, 0, 1), flips) for volume in (ct, labels))
    prepared = preprocess(ct, CONFIG)
    got = resample_labels(labels, prepared.transform)
    assert got.shape == CONFIG.grid
    assert got.dtype == np.uint8
    assert set(np.unique(got)) == {0, 51}
    # The cell's centre lies in a bone voxel exactly when the nearest voxel is bone.
    centres = np.stack(np.meshgrid(*map(np.arange, CONFIG.grid), indexing="ij"), -1)
    index = (
        np.linalg.inv(ct.affine)
        @ np.concatenate([prepared.transform.world(centres), np.ones((*CONFIG.grid, 1))], -1)
        .reshape(-1, 4)
        .T
    )
    nearest = np.clip(np.rint(index[:3]).astype(int).T, 0, np.array(ct.shape) - 1)
    exact = (ct.voxels[tuple(nearest.T)] == BONE).reshape(CONFIG.grid)
    off_ties = (np.abs(index[:3] % 1 - 0.5) > 1e-6).all(0).reshape(CONFIG.grid)
    np.testing.assert_array_equal((got == 51)[off_ties], exact[off_ties])
    assert prepared.image[got == 51].min() > 0.5


def test_label_ties_are_not_left_to_rounding_errors():
    """Half as many cells as voxels: each cell's centre is midway between two voxels."""
    rng = np.random.default_rng(0)
    affine = np.diag([0.977, 0.977, 1.1, 1.0])
    affine[:3, 3] = (-251.3, 17.77, 903.1)
    ct = Volume(np.full((64, 64, 32), TISSUE, np.float32), affine)
    labels = Volume(rng.integers(0, 118, ct.shape), affine)
    config = PreprocessConfig(grid=(16, 32, 32))
    expected = labels.voxels.transpose(2, 1, 0)[:, ::-1, ::-1][1::2, 1::2, 1::2]
    for flips in product([False, True], repeat=3):
        transform = preprocess(reordered(ct, (1, 2, 0), flips), config).transform
        got = resample_labels(reordered(labels, (1, 2, 0), flips), transform)
        np.testing.assert_array_equal(got, expected)


def test_labels_outside_the_scan_are_background():
    ct = patient(shape=(60, 20, 30))  # long in x: padded along H
    prepared = preprocess(ct, CONFIG)
    got = resample_labels(Volume(np.full(ct.shape, 7, np.uint8), ct.affine), prepared.transform)
    before, after = prepared.parameters["padding_voxels"][1]
    assert min(before, after) > 0
    assert (got[:, 0] == 0).all()
    assert (got[:, -1] == 0).all()
    assert (got[:, CONFIG.grid[1] // 2] == 7).all()


def test_parameters_are_json():
    parameters = preprocess(patient(), CONFIG).parameters
    assert json.loads(json.dumps(parameters)) == parameters
    assert parameters["grid"] == [16, 48, 40]
    assert parameters["source_spacing_mm"] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("bad", [{"grid": (0, 8, 8)}, {"width": 0.0}, {"level": float("nan")}])
def test_an_impossible_config_is_refused(bad):
    with pytest.raises(InputError):
        PreprocessConfig(**bad)
