"""Anatomies of realistic patients, drawn from the parametric trunk and from folders of label maps.

Each draw takes a template (`label_maps.py`), deforms it (`deformation.py`), and decides how the
patient lies in the scanner and what the scan shows of them (`view.py`).
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.anatomy import Anatomy
from tumorchain_jax.phantoms.deformation import draw_deformation
from tumorchain_jax.phantoms.label_maps import Template, complete, read_label_map, trunk_outline
from tumorchain_jax.phantoms.view import draw_view, show

TRUNK_SHARE = 0.35  # of patients, where there are label maps too
TRUNKS, FILLS = 8, 3
"""Parametric trunks that are drawn from; ways in which what a label map lacks is filled in."""
CACHED = 16  # templates, of some 20 MB each
# Organs that grow, turn and move each on its own.
MOVING = (1, 2, 3, 5, 6, 7, 20, 21, 51)
PARAMETRIC = "the parametric trunk"


@dataclass(frozen=True)
class Sources:
    """Where anatomies are drawn from.

    Attributes:
        maps: label maps, beside the parametric trunk.
        fingerprint: sha256 of the maps' bytes; "" without maps.
    """

    maps: tuple[Path, ...] = ()
    fingerprint: str = ""

    @property
    def phrase(self) -> str:
        """What the anatomies come from, for model cards."""
        if not self.maps:
            return PARAMETRIC
        return f"{PARAMETRIC} and {len(self.maps)} label maps (sha256 {self.fingerprint[:12]})"


def load_sources(folder: Path | None) -> Sources:
    """Find the label maps of a folder, and read the first.

    Args:
        folder: of `*.nii.gz` with TotalSegmentator v2 `total` ids, in any depth; values of 200 and
            above are of the body without being an organ. None: the parametric trunk alone.

    Raises:
        InputError: the folder has no label map, or its first file is none.
    """
    if folder is None:
        return Sources()
    paths = tuple(sorted(folder.rglob("*.nii.gz")))
    if not paths:
        hint = "give a folder of label maps of TotalSegmentator v2 `total`"
        raise InputError(str(folder), "anatomies", "no .nii.gz file", "label maps", hint)
    _template(paths[0], 0)
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return Sources(paths, digest.hexdigest())


def draw_anatomy(rng: np.random.Generator, sources: Sources) -> Anatomy:
    """Draw a patient's anatomy; the same state of `rng` and the same sources give the same.

    Raises:
        InputError: the label map that was drawn cannot be used.
    """
    path = None
    if sources.maps and rng.random() >= TRUNK_SHARE:
        path = sources.maps[rng.integers(len(sources.maps))]
    template = _template(path, int(rng.integers(TRUNKS if path is None else FILLS)))
    low = template.origin
    high = low + (np.array(template.labels.shape) - 1) * template.voxel_mm
    organs = [template.boxes[label] for label in MOVING if label in template.boxes]
    deformation = draw_deformation(rng, (low, high), organs)
    view = draw_view(rng, template)
    source = PARAMETRIC if path is None else f"{path.name}, completed by {PARAMETRIC}"
    return show(rng, template, deformation, view, source)


@lru_cache(maxsize=CACHED)
def _template(path: Path | None, variant: int) -> Template:
    if path is None:
        labels, origin = trunk_outline(np.random.default_rng(variant))
    else:
        labels, origin = read_label_map(path)
    return complete(labels, origin, variant)
