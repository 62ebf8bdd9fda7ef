"""A small data set of drawn lesions in BUS-BRA's layout."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

CASES = 24


def write_pictures(root: Path) -> None:
    """BUS-BRA's layout: benign lesions are dark and wide, malignant ones bright and tall."""
    (root / "Images").mkdir(parents=True)
    (root / "Masks").mkdir()
    rows = ["ID,Case,Histology,Pathology,BIRADS,Device,Width,Height,Side,BBOX"]
    for case in range(CASES):
        rng = np.random.default_rng(case)
        noise = Image.fromarray(rng.integers(0, 255, (80, 80), np.uint8))
        smooth = np.asarray(noise.filter(ImageFilter.GaussianBlur(4)), float)
        grey = 40 + 120 * (smooth - smooth.min()) / np.ptp(smooth)
        malignant = case % 2 == 1
        half = (20, 9) if malignant else (9, 20)
        y, x = np.mgrid[:80, :80]
        inside = ((y - 40) / half[0]) ** 2 + ((x - 40) / half[1]) ** 2 <= 1
        grey[inside] = 230 if malignant else 10
        name = f"bus_{case:04d}-s"
        Image.fromarray(grey.astype(np.uint8)).save(root / "Images" / f"{name}.png")
        Image.fromarray(inside).save(root / "Masks" / f"{name.replace('bus_', 'mask_')}.png")
        label = "malignant" if malignant else "benign"
        birads = "5" if malignant else "3"
        device = "Logiq 5" if case % 3 == 0 else "Logiq 7"
        rows.append(f'{name},{case},x,{label},{birads},{device},80,80,single,"[1,1,1,1]"')
    (root / "bus_data.csv").write_text("\n".join(rows) + "\n")
