"""BUSI (Al-Dhabyani et al. 2020): `CLASS/NAME.png`, masks `NAME_mask.png`, `NAME_mask_1.png`, ...

It names no patients, and has near duplicates, some of them in two classes.
"""

from collections.abc import Iterator
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.lesion import LABELS
from tumorchain_jax.ultrasound.sources.row import SourceRow, check_label

NAME, LICENCE = "busi", "see Al-Dhabyani et al., Data in Brief 2020 (cite the article)"
INNER = "Dataset_BUSI_with_GT"


def detect(folder: Path) -> bool:
    """Whether a folder is this set: two or more folders named by class."""
    root = _root(folder)
    return sum((root / label).is_dir() for label in LABELS) >= 2


def _root(folder: Path) -> Path:
    return folder / INNER if (folder / INNER).is_dir() else folder


def read(folder: Path) -> Iterator[SourceRow]:
    """List its pictures.

    Raises:
        InputError: a picture of one name is in two classes, or a lesion has no mask.
    """
    seen: dict[str, str] = {}
    for label in LABELS:
        for image in sorted((_root(folder) / label).glob("*.png")):
            if "_mask" in image.stem:
                continue
            other = seen.setdefault(image.stem, label)
            if other != label:
                found, expected = f"in {other} and in {label}", "one class"
                raise InputError(image, "class", found, expected, "remove one of them")
            masks = tuple(sorted(image.parent.glob(f"{_escaped(image.stem)}_mask*.png")))
            if label != "normal" and not masks:
                raise InputError(image, "mask", "none", f"{image.stem}_mask.png", "complete it")
            yield SourceRow(
                id=image.stem,
                image=image,
                masks=() if label == "normal" else masks,
                patient=None,
                label=check_label(image, image.stem, label),
            )


def _escaped(stem: str) -> str:
    """A name whose brackets mean themselves in a glob pattern."""
    return "".join(f"[{sign}]" if sign in "[]*?" else sign for sign in stem)
