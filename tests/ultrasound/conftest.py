"""Small data sets in the layouts of public ones."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter


def speckle(seed: int, size: tuple[int, int] = (96, 120)) -> np.ndarray:
    """Smooth noise that differs from seed to seed, 8-bit."""
    rng = np.random.default_rng(seed)
    noise = Image.fromarray(rng.integers(0, 200, size, np.uint8))
    smooth = np.asarray(noise.filter(ImageFilter.GaussianBlur(5)), float)
    return (20 + 200 * (smooth - smooth.min()) / np.ptp(smooth)).astype(np.uint8)


def disc(size: tuple[int, int] = (96, 120)) -> np.ndarray:
    y, x = np.mgrid[: size[0], : size[1]]
    return ((y - 50) / 20) ** 2 + ((x - 60) / 30) ** 2 <= 1


@pytest.fixture
def busi(tmp_path: Path) -> Path:
    """BUSI's layout: four benign, four malignant, two normal."""
    root = tmp_path / "busi"
    for number, label in enumerate(("benign", "malignant", "normal")):
        (root / label).mkdir(parents=True)
        for k in range(1, 5 if label != "normal" else 3):
            name = root / label / f"{label} ({k}).png"
            Image.fromarray(speckle(10 * number + k)).save(name)
            Image.fromarray(disc()).save(name.with_name(f"{label} ({k})_mask.png"))
    return root


@pytest.fixture
def busbra(tmp_path: Path) -> Path:
    """BUS-BRA's layout: four patients, two of them with two views."""
    root = tmp_path / "busbra"
    (root / "Images").mkdir(parents=True)
    (root / "Masks").mkdir()
    rows = ["ID,Case,Histology,Pathology,BIRADS,Device,Width,Height,Side,BBOX"]
    for case, side, label in (
        (1, "l", "benign"), (1, "r", "benign"), (2, "l", "malignant"), (2, "r", "malignant"),
        (3, "s", "benign"), (4, "s", "malignant"),
    ):  # fmt: skip
        name = f"bus_{case:04d}-{side}"
        Image.fromarray(speckle(100 + 2 * case + (side == "r"))).save(
            root / "Images" / f"{name}.png"
        )
        Image.fromarray(disc()).save(root / "Masks" / f"{name.replace('bus_', 'mask_')}.png")
        rows.append(f'{name},{case},fibroadenoma,{label},4,Logiq 7,120,96,left,"[1,1,1,1]"')
    (root / "bus_data.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[object, str], Path]:
    """Saves an image under a name."""

    def save(image: object, name: str = "picture.png", **options: object) -> Path:
        path = tmp_path / name
        made = image if isinstance(image, Image.Image) else Image.fromarray(np.asarray(image))
        made.save(path, **options)
        return path

    return save
