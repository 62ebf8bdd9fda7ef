import base64
import io

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.report.cells import cell_mask
from tumorchain_jax.report.pictures import Picture, organ_colour, planes

GRID, CELLS = (8, 16, 16), (4, 4, 4)
RED = (255, 0, 0)
NO_ROI = np.zeros(GRID, bool)


def affine(*columns: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = np.array(columns).T
    matrix[:3, 3] = (10, -20, 30)
    return matrix


# d to superior, h to posterior, w to the patient's left: the frame of `preprocess`.
CANONICAL = affine((0, 0, 4), (0, -2, 0), (-2, 0, 0))


def pixels(picture: Picture) -> np.ndarray:
    head, data = picture.uri.split(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def coloured(picture: Picture) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is not grey, as shares of the picture."""
    rgb = pixels(picture)
    rows, columns = np.nonzero(rgb.max(axis=2) > rgb.min(axis=2))
    height, width = rgb.shape[:2]
    left, top = columns.min() / width, rows.min() / height
    return left, top, (columns.max() + 1) / width, (rows.max() + 1) / height


def test_sides_and_order() -> None:
    shown = planes(np.zeros(GRID, np.float32), CANONICAL, NO_ROI, RED)
    # Left, right, top, bottom of the picture.
    assert [(picture.plane, picture.sides) for picture in shown] == [
        ("axial", "RLAP"),
        ("coronal", "RLSI"),
        ("sagittal", "APSI"),
    ]


# Cell (3, 0, 1) of 4 x 4 x 4, as (left, top, right, bottom) in quarters of each picture.
PLACES = {
    "superior, posterior, left": (CANONICAL, (1, 0, 2, 1), (1, 0, 2, 1), (0, 0, 1, 1)),
    "inferior, posterior, left": (
        affine((0, 0, -4), (0, -2, 0), (-2, 0, 0)),
        (1, 0, 2, 1),
        (1, 3, 2, 4),
        (0, 3, 1, 4),
    ),
    "superior, anterior, right": (
        affine((0, 0, 4), (0, 2, 0), (2, 0, 0)),
        (2, 3, 3, 4),
        (2, 0, 3, 1),
        (3, 0, 4, 1),
    ),
    # d runs from right to left, h to superior, w to posterior.
    "left, superior, posterior": (
        affine((-4, 0, 0), (0, 0, 2), (0, -2, 0)),
        (3, 1, 4, 2),
        (3, 3, 4, 4),
        (1, 3, 2, 4),
    ),
}


@pytest.mark.parametrize("frame", PLACES)
def test_cell_is_drawn_at_its_place(frame: str) -> None:
    to_world, *expected = PLACES[frame]
    mask = cell_mask((3 * 16 + 0 * 4 + 1,), CELLS, GRID)
    shown = planes(np.full(GRID, 0.5, np.float32), to_world, mask, RED)
    for picture, quarters in zip(shown, expected, strict=True):
        assert coloured(picture) == pytest.approx([quarter / 4 for quarter in quarters], abs=0.01)


def test_outline_is_the_colour_and_the_fill_lets_the_ct_through() -> None:
    image = np.full(GRID, 0.2, np.float32)
    image[:, :, 6:] = 0.8
    axial = pixels(planes(image, CANONICAL, cell_mask((17, 18), CELLS, GRID), RED)[0])
    # Cells (1, 0, 1) and (1, 0, 2) are columns 64 to 191 and rows 0 to 63 of 256.
    assert (axial[0:64, 64] == RED).all()
    assert (axial[63, 64:192] == RED).all()
    dark, bright = axial[30, 70], axial[30, 180]
    assert dark[0] > dark[1] == dark[2]
    assert bright[1] > dark[1] + 80
    # One outline around both cells, none between them.
    assert (axial[5:59, 127:130] != RED).any(axis=2).all()
    grey = axial[100:]
    assert (grey == grey[:, :, :1]).all()


@pytest.mark.parametrize("frame", PLACES)
def test_roi_covers_what_it_covers_in_the_image(frame: str) -> None:
    to_world, *expected = PLACES[frame]
    mask = cell_mask((3 * 16 + 0 * 4 + 1,), CELLS, GRID)
    shown = planes(mask.astype(np.float32), to_world, mask, RED)
    for picture, quarters in zip(shown, expected, strict=True):
        bright = np.argwhere(pixels(picture)[:, :, 1] > 128).mean(axis=0)
        left, top, right, bottom = np.array(quarters) / 4
        middle = (top + bottom) / 2 * picture.height, (left + right) / 2 * picture.width
        assert bright == pytest.approx(middle, abs=4)


@pytest.mark.parametrize("spacing", [(4, 2, 2), (9, 1.5, 1.5), (2, 1.3, 2.1), (30, 1, 1.7)])
def test_proportions_are_those_in_mm(spacing: tuple[float, float, float]) -> None:
    d, h, w = spacing
    tilt = np.array([[1, 0, 0, 0], [0, 0.96, -0.28, 0], [0, 0.28, 0.96, 0], [0, 0, 0, 1]])
    to_world = tilt @ affine((0, 0, d), (0, -h, 0), (-w, 0, 0))
    length, depth, width = np.multiply(GRID, spacing)
    mm = {"axial": (width, depth), "coronal": (width, length), "sagittal": (depth, length)}
    shown = planes(np.zeros(GRID, np.float32), to_world, NO_ROI, RED)
    pixel = mm["axial"][0] / shown[0].width
    for picture in shown:
        assert pixels(picture).shape == (picture.height, picture.width, 3)
        wide, high = mm[picture.plane]
        # Each side is rounded to whole pixels, and all pictures share one scale.
        assert picture.width == pytest.approx(wide / pixel, abs=1)
        assert picture.height == pytest.approx(high / pixel, abs=1)
    assert max(max(picture.width, picture.height) for picture in shown) <= 512


def test_slices_pass_through_the_centre_of_mass() -> None:
    image = np.zeros(GRID, np.float32)
    image[3] = 1.0
    mask = NO_ROI.copy()
    mask[1, 5, 5] = mask[3, 5, 5] = mask[4, 5, 5] = True  # mean 2.67, nearest with ROI 3
    axial = pixels(planes(image, CANONICAL, mask, RED)[0])
    assert (axial[-1] == 255).all()


def test_roi_in_two_parts_is_always_seen() -> None:
    mask = cell_mask((0, 63), CELLS, GRID)
    for picture in planes(np.zeros(GRID, np.float32), CANONICAL, mask, RED):
        left, top, right, bottom = coloured(picture)
        assert (right - left, bottom - top) == pytest.approx((0.25, 0.25), abs=0.01)


def test_without_roi_the_middle_slices_show_in_grey() -> None:
    image = np.zeros(GRID, np.float32)
    image[4] = 1.0
    axial, *others = planes(image, CANONICAL, NO_ROI, RED)
    assert (pixels(axial) == 255).all()
    for picture in others:
        rgb = pixels(picture)
        assert (rgb == rgb[:, :, :1]).all()


def test_slices_go_through_what_is_asked_for() -> None:
    cell, point = cell_mask([0], CELLS, GRID), NO_ROI.copy()
    point[7, 15, 15] = True
    image = np.zeros(GRID, np.float32)
    image[7] = 1.0
    axial, *_ = planes(image, CANONICAL, cell, RED, through=point)
    assert (pixels(axial) == 255).all()  # slice 7, where the cell is not
    through_cell, *_ = planes(image, CANONICAL, cell, RED)
    assert coloured(through_cell) == (0, 0, 0.25, 0.25)
    # The cell is drawn where the slice meets it.
    point[:] = False
    point[0, 15, 15] = True
    axial, coronal, _ = planes(image, CANONICAL, cell, RED, through=point)
    assert coloured(axial) == (0, 0, 0.25, 0.25)
    assert (pixels(coronal) == pixels(coronal)[:, :, :1]).all()


def test_organ_colours_are_apart() -> None:
    colours = np.array([organ_colour(rank) for rank in range(8)])
    distance = np.abs(colours[:, None] - colours[None]).sum(axis=2)
    assert distance[~np.eye(8, dtype=bool)].min() > 60
