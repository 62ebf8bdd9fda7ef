"""Marks drawn into real pictures that have none, and those pictures as they are."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tumorchain_jax.ultrasound.overlays import find_overlays
from tumorchain_jax.ultrasound.picture import read_picture

PICTURES = 20
WORDS = ("LT AXILLA", "RIGHT BREAST", "RT 3 OCL", "MAMA DIREITA", "J SMITH 1961")
Mark = Callable[[ImageDraw.ImageDraw, np.random.Generator, tuple[int, int]], None]


@pytest.fixture(scope="module")
def clean(shared_data: Path) -> Sequence[np.ndarray]:
    """Pictures of BrEaST, where nothing is burned in."""
    folder = shared_data / "bus-breast-lesions-usg" / "images_and_masks"
    files = sorted(path for path in folder.glob("*.png") if path.stem.isalnum())
    return [read_picture(path).grey for path in files[:: len(files) // PICTURES][:PICTURES]]


def text(draw: ImageDraw.ImageDraw, rng: np.random.Generator, size: tuple[int, int]) -> None:
    font = ImageFont.load_default(int(rng.integers(11, 18)))
    at = (rng.uniform(5, size[0] - 150), rng.uniform(5, size[1] - 25))
    draw.text(at, str(rng.choice(WORDS)), int(rng.integers(225, 256)), font)


def calipers(draw: ImageDraw.ImageDraw, rng: np.random.Generator, size: tuple[int, int]) -> None:
    """Four, all + or all x."""
    arm, slanted, grey = rng.integers(5, 8), rng.random() < 0.5, int(rng.integers(225, 256))
    for _ in range(4):
        x, y = (rng.uniform(15, side - 15) for side in size)
        for dx, dy in ((arm, arm), (arm, -arm)) if slanted else ((arm, 0), (0, arm)):
            draw.line((x - dx, y - dy, x + dx, y + dy), grey)


def found_in(pictures: Sequence[np.ndarray], mark: Mark | None = None) -> dict[str, float]:
    """In which share of the pictures, marked or as they are, each mark is found."""
    found = []
    for number, grey in enumerate(pictures):
        image = Image.fromarray(grey)
        if mark is not None:
            mark(ImageDraw.Draw(image), np.random.default_rng(number), image.size)
        found.append(find_overlays(np.asarray(image)))
    return {
        name: sum(name in marks for marks in found) / len(found) for name in ("text", "calipers")
    }


def test_text_over_tissue_is_found_and_letters_are_no_calipers(
    clean: Sequence[np.ndarray],
) -> None:
    shares = found_in(clean, text)
    assert shares["text"] >= 0.9
    assert shares["calipers"] <= 0.1


def test_calipers_over_tissue_are_found(clean: Sequence[np.ndarray]) -> None:
    assert found_in(clean, calipers)["calipers"] >= 0.9


def test_nothing_is_found_where_nothing_is_burned_in(clean: Sequence[np.ndarray]) -> None:
    assert found_in(clean) == {"text": 0, "calipers": 0}


def test_marks_are_found_at_twice_the_size(clean: Sequence[np.ndarray]) -> None:
    """Pictures as devices save them have more pixels, and larger marks."""
    marked = []
    for number, grey in enumerate(clean[:6]):
        image = Image.fromarray(grey)
        draw = ImageDraw.Draw(image)
        calipers(draw, np.random.default_rng(number), image.size)
        marked.append(np.asarray(image.resize((2 * image.width, 2 * image.height))))
    assert found_in(marked)["calipers"] >= 0.8


def test_blank_pictures_have_no_marks() -> None:
    assert find_overlays(np.zeros((200, 300), np.uint8)) == ()
    assert find_overlays(np.full((16, 16), 255, np.uint8)) == ()
