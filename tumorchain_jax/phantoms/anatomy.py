"""A patient's anatomy before it is imaged: which organ and which tissue each voxel holds."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, UInt8


class Tissue(IntEnum):
    """What a voxel is made of; organs differ within `ORGAN` by their label."""

    OUTSIDE = 0  # air around the patient
    FAT = 1  # in the abdominal cavity, where nodes lie and masses bulge
    SKIN_FAT = 2
    MUSCLE = 3  # and other soft tissue without a label
    BONE = 4
    ORGAN = 5  # solid organs, vessels, and the walls of hollow organs
    GAS = 6  # in a hollow organ
    CONTENT = 7  # fluid, food or stool in a hollow organ
    LUNG = 8


@dataclass(frozen=True)
class Anatomy:
    """Labels and tissues of one patient on one grid; no densities.

    Attributes:
        labels: TotalSegmentator v2 `total` ids, 0 elsewhere; array axes run to R, A, S or their
            opposites, as `affine` says.
        tissue: values of `Tissue`; every voxel with a label has ORGAN, BONE, MUSCLE, LUNG, GAS or
            CONTENT.
        affine: voxel indices to RAS+ mm; a positive diagonal with a translation.
        source: one phrase that says what the organs come from, for model cards and `truth.json`.
        prone: the patient lies on the belly, so gas rises to the back.
        female: None where it is not known.
    """

    labels: UInt8[np.ndarray, "X Y Z"]
    tissue: UInt8[np.ndarray, "X Y Z"]
    affine: Float[np.ndarray, "4 4"]
    source: str
    prone: bool = False
    female: bool | None = None
