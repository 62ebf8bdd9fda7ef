"""Organ masks to cells of the token grid, and the cells of real scans laid back over the organs."""

from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import ORGANS, merge_labels
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.organ_cells import OrganCells, coverage, organ_cells
from tumorchain_jax.scan.preprocess import (
    GridTransform,
    PreprocessConfig,
    preprocess,
    resample_labels,
)
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume

Grid = tuple[int, int, int]
LIVER = ORGANS.index("liver")
SHAPE = (4, 16, 8)
# Cells of 2x4x2 voxels, and the same pooled by 2: cells of 4x8x4.
GRIDS = {"cells": (2, 4, 4), "pooled": (1, 2, 2), "whole": (1, 1, 1), "voxels": SHAPE}


def blobs(seed: int) -> np.ndarray:
    """Boxes of random organs, some painted over by later ones."""
    rng = np.random.default_rng(seed)
    labels = np.zeros(SHAPE, np.uint8)
    for _ in range(8):
        start = rng.integers(0, SHAPE)
        stop = start + rng.integers(1, 9, 3)
        labels[tuple(map(slice, start, stop))] = rng.integers(0, len(ORGANS))
    return labels


def cells_by_loop(labels: np.ndarray, grid: Grid, slots: int, organ: int) -> tuple[list[int], int]:
    """Raster indices of an organ's cells, best covered first chosen, and how many it touches."""
    d, h, w = (size // cells for size, cells in zip(labels.shape, grid, strict=True))
    found = []
    for z in range(grid[0]):
        for y in range(grid[1]):
            for x in range(grid[2]):
                block = labels[z * d : z * d + d, y * h : y * h + h, x * w : x * w + w]
                voxels = sum(int(voxel == organ) for voxel in block.ravel())
                if voxels:
                    found.append((-voxels, (z * grid[1] + y) * grid[2] + x))
    return sorted(cell for _, cell in sorted(found)[:slots]), len(found)


def spec(grid: Grid, slots: int) -> RoiSpec:
    return RoiSpec(grid, offset=7, slots=slots, global_tokens=7)


def chosen(table: OrganCells, organ: int) -> list[int]:
    return table.cells[organ][table.valid[organ]].tolist()


@pytest.mark.parametrize("slots", [1, 3, 64])
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_equals_a_loop_over_cells(grid: Grid, slots: int) -> None:
    for seed in range(3):
        labels = blobs(seed)
        table = organ_cells(labels, spec(grid, slots))
        assert table.cells.shape == table.valid.shape == (len(ORGANS), slots)
        assert table.cells.dtype == table.touched.dtype == np.int32
        for organ in {*np.unique(labels).tolist(), 1, LIVER} - {0}:
            expected, touched = cells_by_loop(labels, grid, slots, organ)
            assert chosen(table, organ) == expected
            assert table.touched[organ] == touched


def test_slots_are_filled_from_the_front_and_zero_beyond() -> None:
    table = organ_cells(blobs(0), spec(GRIDS["cells"], 24))
    assert table.valid.any()
    assert (table.valid[:, :-1] >= table.valid[:, 1:]).all()
    assert not table.cells[~table.valid].any()
    assert (table.valid.sum(axis=1) == np.minimum(table.touched, 24)).all()


def test_visual_indices_are_the_cells_behind_the_offset() -> None:
    table = organ_cells(blobs(0), spec(GRIDS["cells"], 24))
    rois = table.rois()
    assert rois.keys() == {organ for organ in range(len(ORGANS)) if table.touched[organ]}
    for organ, index in rois.items():
        assert index.dtype == np.int32
        assert index.tolist() == [7 + cell for cell in chosen(table, organ)]
        assert index.tolist() == table.visual_index[organ, : len(index)].tolist()


def test_background_has_no_cells() -> None:
    table = organ_cells(np.zeros(SHAPE, np.uint8), spec(GRIDS["cells"], 4))
    assert not table.valid.any()
    assert not table.touched.any()


def test_best_covered_cells_are_kept_in_raster_order() -> None:
    labels = np.zeros(SHAPE, np.uint8)
    for cell, voxels in {2: 5, 7: 1, 13: 16, 20: 9, 31: 9}.items():
        z, y, x = np.unravel_index(cell, GRIDS["cells"])
        block = labels[2 * z : 2 * z + 2, 4 * y : 4 * y + 4, 2 * x : 2 * x + 2]
        block[np.unravel_index(np.arange(voxels), block.shape)] = LIVER
    assert coverage(labels, GRIDS["cells"])[LIVER, [2, 7, 13, 20, 31]].tolist() == [5, 1, 16, 9, 9]
    best = {
        slots: chosen(organ_cells(labels, spec(GRIDS["cells"], slots)), LIVER)
        for slots in range(1, 6)
    }
    assert best == {
        1: [13],
        2: [13, 20],  # of two that are covered alike, the first
        3: [13, 20, 31],
        4: [2, 13, 20, 31],
        5: [2, 7, 13, 20, 31],
    }


def test_one_voxel_anywhere_is_one_cell() -> None:
    rng = np.random.default_rng(0)
    for organ in range(1, len(ORGANS)):
        labels = np.full(SHAPE, organ % 56 + 1, np.uint8)
        voxel = tuple(rng.integers(0, SHAPE))
        labels[voxel] = organ
        z, y, x = voxel
        table = organ_cells(labels, spec(GRIDS["cells"], 2))
        assert chosen(table, organ) == [(z // 2) * 16 + (y // 4) * 4 + x // 2]


# Real scans. The label map of the model grid takes one of three or four slices of the first, one of
# two rows of the second: where an organ reaches into a cell only between them, it is not seen.
SCANS = {
    "nifti": ("example_ct.nii.gz", "example_seg_fast_force_split.nii.gz"),
    "dicom": ("example_ct_dicom", "example_seg_dicom.nii.gz"),
}
GRID = (8, 16, 16)
PATCH = (4, 16, 16)
SLOTS = 64


@pytest.fixture(scope="module", params=SCANS)
def scan(shared_data: Path, request: pytest.FixtureRequest) -> tuple[Volume, GridTransform]:
    """Merged labels in the scan's own space, and the way to the model grid."""
    ct_file, label_file = SCANS[request.param]
    folder = shared_data / "ct-totalsegmentator"
    ct = read_ct(folder / ct_file)
    labels = read_labels(folder / label_file, ct)
    transform = preprocess(ct, PreprocessConfig()).transform
    return Volume(merge_labels(labels.voxels), labels.affine), transform


def test_cells_lie_on_the_organs_of_a_real_scan(scan: tuple[Volume, GridTransform]) -> None:
    labels, transform = scan
    on_grid = resample_labels(labels, transform)
    everything = organ_cells(on_grid, spec(GRID, int(np.prod(GRID))))
    limited = organ_cells(on_grid, spec(GRID, SLOTS))

    voxels = np.argwhere(labels.voxels > 0)
    organ_of = labels.voxels[tuple(voxels.T)]
    world = voxels @ labels.affine[:3, :3].T + labels.affine[:3, 3]
    to_index = np.linalg.inv(transform.to_world)
    position = np.floor(world @ to_index[:3, :3].T + to_index[:3, 3] + 0.5).astype(int)
    assert ((position >= 0) & (position < transform.grid)).all()  # no organ is cropped away
    seen_as = on_grid[tuple(position.T)]
    cell = np.ravel_multi_index((position // PATCH).T, GRID)

    organs = np.unique(organ_of).tolist()
    assert len(organs) > 15
    assert max(limited.touched) > 2 * SLOTS
    for organ in organs:
        mine = organ_of == organ
        covered = np.isin(cell[mine], chosen(everything, organ))
        assert covered[seen_as[mine] == organ].all(), ORGANS[organ]
        share = covered.mean()
        assert share > (0.99 if len(covered) > 1000 else 0.93), ORGANS[organ]

        touched = int(limited.touched[organ])
        share_limited = np.isin(cell[mine], chosen(limited, organ)).mean()
        if touched <= SLOTS:
            assert share_limited == share
        # The best covered cells hold no less than as many average ones.
        assert share_limited > share * min(1, SLOTS / touched) - 0.01, ORGANS[organ]
        assert share_limited > 0.4, ORGANS[organ]
