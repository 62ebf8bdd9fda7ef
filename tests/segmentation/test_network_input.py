"""segmentation/preprocess.py."""

from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.plans import Plan
from tumorchain_jax.segmentation.preprocess import find_grids, preprocess, restore

SPACING = (2.0, 2.0, 2.0)


def scan_of(voxels: np.ndarray, spacing: tuple[float, ...] = SPACING) -> Volume:
    return Volume(voxels, np.diag([*spacing, 1.0]), "scan")


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-900, 900, shape).astype(np.float32)


def prepared(scan: Volume, plan: Plan) -> np.ndarray:
    return preprocess(scan, plan, find_grids(scan, plan))


def test_axes_are_reversed_and_then_transposed(small_plan: Plan) -> None:
    scan = scan_of(random(4, 5, 6), (1.0, 2.0, 3.0))
    plan = replace(small_plan, transpose_forward=(1, 2, 0), transpose_backward=(2, 0, 1))
    grids = find_grids(scan, plan)
    assert grids.shape == (5, 4, 6)
    assert grids.spacing == (2.0, 1.0, 3.0)
    assert grids.network_shape == (5, 2, 9)


def test_ct_is_clipped_and_scaled_by_the_plan(small_plan: Plan) -> None:
    voxels = random(4, 5, 6)
    before = voxels.copy()
    expected = (np.clip(voxels, -500, 500) - 40) / 200
    np.testing.assert_allclose(prepared(scan_of(voxels), small_plan), expected.T, atol=1e-6)
    np.testing.assert_array_equal(voxels, before)


def test_only_what_is_not_zero_is_taken_and_labels_find_their_place(small_plan: Plan) -> None:
    voxels = np.zeros((9, 8, 7), np.float32)
    voxels[2:6, 1:8, 3:4] = random(4, 7, 1)
    # A hole in it changes nothing.
    voxels[4, 4, 3] = 0
    scan, plan = scan_of(voxels), replace(small_plan, transpose_forward=(2, 0, 1))
    grids = find_grids(scan, plan)
    assert grids.shape == (4, 1, 7)
    labels = (np.arange(28, dtype=np.uint8) + 1).reshape(grids.shape)
    back = restore(labels, scan, plan, grids)
    assert back.affine is scan.affine
    assert back.voxels.dtype == np.uint8
    assert np.count_nonzero(back.voxels) == 28
    np.testing.assert_array_equal(back.voxels[2:6, 1:8, 3], labels[:, 0])


def test_normalisation_of_what_is_no_ct(small_plan: Plan) -> None:
    voxels = np.abs(random(6, 6, 6)) / 4
    voxels[0] = 0
    # A hole, which counts as inside.
    voxels[3, 3, 3] = 0
    scan = scan_of(voxels)

    def by(scheme: str, masked: bool = False) -> np.ndarray:
        changed = replace(small_plan, normalization=(scheme,), use_mask_for_norm=(masked,))
        return prepared(scan, changed).T

    inner = voxels[1:]
    np.testing.assert_array_equal(by("NoNormalization"), inner)
    np.testing.assert_allclose(by("RGBTo01Normalization"), inner / 255, atol=1e-6)
    np.testing.assert_allclose(by("RescaleTo01Normalization"), inner / inner.max(), atol=1e-6)
    expected = (inner - inner.mean()) / inner.std()
    np.testing.assert_allclose(by("ZScoreNormalization"), expected, atol=1e-5)
    np.testing.assert_allclose(by("ZScoreNormalization", masked=True), expected, atol=1e-5)
    # Zeros that reach the crop's edge are outside.
    voxels[1:3, 0] = 0
    outside = inner.copy()
    outside[:2, 0] = np.nan
    expected = (outside - np.nanmean(outside)) / np.nanstd(outside)
    expected[:2, 0] = 0
    np.testing.assert_allclose(by("ZScoreNormalization", masked=True), expected, atol=1e-5)
    with pytest.raises(InputError, match="expected 0 to 255"):
        prepared(scan_of(-inner), replace(small_plan, normalization=("RGBTo01Normalization",)))


def test_single_slice_is_a_scan_too(small_plan: Plan) -> None:
    assert prepared(scan_of(random(8, 8, 1), (1, 1, 5)), small_plan).shape == (2, 4, 4)


@pytest.mark.parametrize(
    ("voxels", "spacing", "line"),
    [
        (np.full((4, 4, 4), np.nan), SPACING, "scan: voxels: found NaN or infinite"),
        (np.full((4, 4, 4), np.inf), SPACING, "scan: voxels: found NaN or infinite"),
        (np.zeros((4, 4, 4)), SPACING, "scan: voxels: found all 0"),
        (np.ones((8, 8, 1)), (1.0, 1.0, 0.5), "found 1 x 8 x 8 voxels of 0.5 x 1 x 1 mm"),
    ],
)
def test_what_cannot_be_prepared_is_said(
    voxels: np.ndarray, spacing: tuple[float, ...], line: str, small_plan: Plan
) -> None:
    with pytest.raises(InputError, match=line):
        find_grids(scan_of(voxels, spacing), small_plan)
