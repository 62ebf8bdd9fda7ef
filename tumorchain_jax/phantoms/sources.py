"""Anatomies of realistic patients, drawn from the parametric trunk."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.body import (
    AIR_HU,
    FAT_HU,
    SKIN_FAT_HU,
    Body,
    draw_space,
    draw_trunk,
)

PARAMETRIC = "the parametric trunk"
_HOLLOW, _LUNGS, _MUSCLES = (6, 15, 18, 19, 20), range(10, 15), range(80, 90)
_BONES = (*range(25, 51), *range(69, 79), *range(91, 116))


@dataclass(frozen=True)
class Sources:
    """Where anatomies are drawn from.

    Attributes:
        fingerprint: sha256 of the label maps' bytes; "" without maps.
    """

    fingerprint: str = ""


def load_sources(folder: Path | None) -> Sources:
    """Find the label maps of a folder.

    Raises:
        InputError: a folder is given; label maps cannot be read.
    """
    if folder is not None:
        hint = "leave out the folder"
        raise InputError(str(folder), "anatomies", "a folder", "the parametric trunk alone", hint)
    return Sources()


def draw_anatomy(rng: np.random.Generator, sources: Sources) -> Anatomy:
    """Draw a patient's anatomy; the same state of `rng` gives the same."""
    space, affine = draw_space(rng)
    body = Body("portal venous", cirrhosis=False, swelling=False)
    image, labels, _ = draw_trunk(rng, space, affine.diagonal()[:3], body)
    tissue = np.full(labels.shape, Tissue.MUSCLE, np.uint8)
    tissue[labels > 0] = Tissue.ORGAN
    for hu, kind in (
        (AIR_HU, Tissue.OUTSIDE),
        (SKIN_FAT_HU, Tissue.SKIN_FAT),
        (FAT_HU, Tissue.FAT),
    ):
        tissue[(labels == 0) & (image == hu)] = kind
    for ids, kind in ((_LUNGS, Tissue.LUNG), (_BONES, Tissue.BONE), (_MUSCLES, Tissue.MUSCLE)):
        tissue[np.isin(labels, ids)] = kind
    hollow = np.isin(labels, _HOLLOW)
    tissue[hollow & (image < -500)] = Tissue.GAS
    tissue[hollow & (image > -500) & (image < 38)] = Tissue.CONTENT
    return Anatomy(labels, tissue, affine, PARAMETRIC)
