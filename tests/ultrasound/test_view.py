"""Views of a picture: what each shows and hides."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.lesion import Box, Lesion
from tumorchain_jax.ultrasound.view import VIEWS, View, render, render_mask


def lesion(folder: Path, box: Box | None = None, size: tuple[int, int] = (60, 100)) -> Lesion:
    rows, columns = np.mgrid[: size[0], : size[1]]
    grey = (rows + columns + 1).astype(np.uint8)
    Image.fromarray(grey).save(folder / "a.png")
    return Lesion("a", "a.png", "", box, "p", True, "", "", "s", "benign", width=100, height=60)


def test_whole_picture_is_padded_to_a_square_in_the_middle(tmp_path: Path) -> None:
    view = render(tmp_path, lesion(tmp_path), "image", 100)
    assert (view[:20] == 0).all()
    assert (view[80:] == 0).all()
    assert view[20, 0] == 1
    assert view[79, 99] == 159
    small = render(tmp_path, lesion(tmp_path), "image", 50)
    expected = Image.fromarray(view).resize((50, 50), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(small, np.asarray(expected))


def test_lesion_fills_two_thirds_of_its_view(tmp_path: Path) -> None:
    row = lesion(tmp_path, Box(40, 20, 20, 10))
    view = render(tmp_path, row, "lesion", 30)  # the side is 20 x 1.5
    assert view.shape == (30, 30)
    assert view[15, 15] == 50 + 25 + 1
    at_the_edge = render(tmp_path, lesion(tmp_path, Box(90, 50, 10, 10)), "lesion", 15)
    assert (at_the_edge[-2:] == 0).all()
    assert at_the_edge[5, 5] > 0


def test_outside_hides_the_lesion_by_a_square_of_fixed_size(tmp_path: Path) -> None:
    blanks = [
        (render(tmp_path, lesion(tmp_path, box, (100, 100)), "outside", 100) == 0).sum()
        for box in (Box(45, 45, 10, 10), Box(40, 48, 20, 4))
    ]
    assert blanks == [60 * 60, 60 * 60]


def test_views_of_a_lesion_need_its_box(tmp_path: Path) -> None:
    for view in ("lesion", "outside"):
        with pytest.raises(InputError, match="no box"):
            render(tmp_path, lesion(tmp_path), view, 32)


@pytest.mark.parametrize("view", VIEWS[:2])
def test_mask_is_shown_as_its_picture(tmp_path: Path, view: View) -> None:
    row = lesion(tmp_path, Box(40, 20, 20, 10))
    mask = np.zeros((60, 100), bool)
    mask[20:30, 40:60] = True
    Image.fromarray(mask).save(tmp_path / "mask.png")
    Image.fromarray(mask.astype(np.uint8) * np.uint8(255)).save(tmp_path / "a.png")
    shown = render_mask(tmp_path, replace(row, mask="mask.png"), view, 40)
    np.testing.assert_array_equal(shown, render(tmp_path, row, view, 40))
    assert shown.max() == 255
    with pytest.raises(InputError, match="mask_weight=0"):
        render_mask(tmp_path, row, view, 40)
