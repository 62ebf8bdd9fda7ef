import numpy as np
import pytest

from tumorchain_jax.report.cells import cell_box, cell_mask

PAPER = (8, 16, 16)


@pytest.mark.parametrize(
    ("cells", "box"),
    [
        ((0,), (0, 0, 0, 1 / 8, 1 / 16, 1 / 16)),
        ((2047,), (7 / 8, 15 / 16, 15 / 16, 1, 1, 1)),
        # 256 cells a slab, 16 a row: 3 * 256 + 2 * 16 + 5 is cell (3, 2, 5).
        ((805,), (3 / 8, 2 / 16, 5 / 16, 4 / 8, 3 / 16, 6 / 16)),
        ((805, 0), (0, 0, 0, 4 / 8, 3 / 16, 6 / 16)),
        ((15, 240), (0, 0, 0, 1 / 8, 1, 1)),
    ],
)
def test_box(cells: tuple[int, ...], box: tuple[float, ...]) -> None:
    assert cell_box(cells, PAPER) == box


def test_no_cells_have_no_box_and_an_empty_mask() -> None:
    assert cell_box((), PAPER) is None
    assert not cell_mask((), PAPER, (32, 256, 256)).any()


def test_mask_covers_the_cell_and_nothing_else() -> None:
    mask = cell_mask((805,), PAPER, (32, 256, 256))
    assert mask.shape == (32, 256, 256)
    assert mask[12:16, 32:48, 80:96].all()
    assert mask.sum() == 4 * 16 * 16


def test_mask_and_box_agree() -> None:
    rng = np.random.default_rng(1)
    cells = tuple(rng.choice(2048, 5, replace=False).tolist())
    positions = np.argwhere(cell_mask(cells, PAPER, (32, 256, 256)))
    box = [*positions.min(axis=0) / (32, 256, 256), *(positions.max(axis=0) + 1) / (32, 256, 256)]
    assert cell_box(cells, PAPER) == pytest.approx(box)


def test_cell_outside_the_grid_is_an_error() -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        cell_box((2048,), PAPER)
