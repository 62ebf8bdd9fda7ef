"""Prepared breast ultrasound pictures, made up, with and without faults."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, PngImagePlugin
from scipy import ndimage

from tumorchain_jax.ultrasound.duplicates import perceptual_hash
from tumorchain_jax.ultrasound.lesion import MANIFEST, Box, Lesion

PLANTED = "malignant_patient_Doe"
"""Stands in every file name and in the metadata of every picture; may be sent to nobody."""


def speckle(seed: int, side: int = 160) -> np.ndarray:
    """A grey picture like ultrasound: coarse structure under speckle."""
    rng = np.random.default_rng(seed)
    coarse = ndimage.gaussian_filter(rng.normal(size=(side, side)), 12)
    coarse = 90 + 60 * (coarse - coarse.min()) / np.ptp(coarse)
    grain = ndimage.gaussian_filter(rng.normal(size=(side, side)), 1.2)  # speckle has a size
    return np.clip(coarse + 15 * grain / grain.std(), 0, 225).astype(np.uint8)


@dataclass
class Made:
    """A folder under `data` in the making."""

    root: Path
    rows: list[Lesion]

    def add(self, name: str, pixels: np.ndarray, label: str, patient: str, known: bool = True,
            **fields: object) -> None:  # fmt: skip
        file = f"images/{PLANTED}_{name}.png"
        told = PngImagePlugin.PngInfo()
        told.add_text("Title", f"{PLANTED} {name}")
        Image.fromarray(pixels).save(self.root / file, pnginfo=told)
        grey = pixels if pixels.ndim == 2 else pixels[..., 0]
        box = None if label == "normal" else Box(60, 60, 40, 30)
        row = Lesion(
            id=name, image=file, mask="", box=box, patient=patient, patient_known=known, view="",
            device="Logiq 7", source="made", label=label, width=grey.shape[1],
            height=grey.shape[0], cluster=len(self.rows), hash=perceptual_hash(grey), **fields,
        )  # fmt: skip
        self.rows.append(row)

    def write(self) -> Path:
        text = "".join(row.to_json() + "\n" for row in self.rows)
        (self.root / MANIFEST).write_text(text)
        return self.root


def make(root: Path) -> Made:
    (root / "images").mkdir(parents=True)
    return Made(root, [])
