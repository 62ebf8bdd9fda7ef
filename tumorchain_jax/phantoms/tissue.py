"""Draw the HU and the texture of every tissue of a realistic patient.

HU are those of adults at 120 kV without contrast and in three phases after it. A share of patients
takes means drawn far wider (domain randomisation as in SynthSeg, Billot et al., Med Image Anal
2023), within what every CT holds to: gas < lung < fat < water < soft tissue < bone.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tumorchain_jax.anatomy.organs import COLORECTUM, STOMACH
from tumorchain_jax.phantoms.anatomy import Tissue
from tumorchain_jax.phantoms.body import PHASES

NON_CONTRAST, NO_PHASE = "non-contrast", "undetermined"
"""Phases of a realistic patient besides `body.PHASES`: without contrast; of means drawn wide."""
PHASE_ODDS = {NON_CONTRAST: 0.2, "arterial": 0.18, "portal venous": 0.42, "delayed": 0.2}
WIDE_SHARE, WIDE_HU = 0.2, (45.0, 200.0)
FATTY_LIVER_SHARE, FATTY_LIVER_HU = 0.12, (-60.0, -20.0)  # the latter is added
ORAL_CONTRAST_SHARE, ORAL_CONTRAST_HU = 0.25, (130.0, 380.0)
EXCRETION_SHARE = 0.5  # of delayed scans: contrast has reached the bladder

# Codes of materials above TotalSegmentator's ids, which stand for the organs themselves.
(OUTSIDE, FAT, SKIN_FAT, SKIN, MUSCLE, CORTEX, GAS, FLUID, CHYME, STOOL, MEDULLA, SINUS, MYOCARDIUM,
 VESSEL) = range(200, 214)  # fmt: skip
MATERIALS = 256

_COLUMNS = (NON_CONTRAST, *PHASES)
# HU in each of `_COLUMNS`, or in all, and the spread between patients. Others are soft tissue.
_HU: dict[int, tuple[tuple[float, float, float, float] | float, float]] = {
    1: ((48, 125, 118, 100), 9), 2: ((32, 170, 180, 150), 13), 3: ((32, 170, 180, 150), 13),
    4: (8, 6), 5: ((56, 74, 110, 95), 9), 6: ((38, 75, 78, 66), 7), 7: ((42, 108, 95, 76), 9),
    8: ((25, 60, 72, 60), 8), 9: ((25, 60, 72, 60), 8), 15: ((38, 62, 68, 60), 6),
    17: ((95, 190, 170, 140), 15), 18: ((36, 85, 90, 70), 8), 19: ((36, 82, 86, 70), 8),
    20: ((36, 70, 76, 64), 7), 21: (6, 5), 22: ((40, 60, 85, 80), 8),
    51: ((42, 235, 150, 118), 16), 52: ((43, 300, 152, 122), 22), 53: ((42, 240, 150, 118), 16),
    63: ((41, 95, 128, 116), 13), 64: ((41, 115, 168, 130), 15), 79: (36, 4),
    116: (180, 40), 117: (95, 20), 90: (36, 3), 23: (6, 5), 24: (6, 5),
    FAT: (-104, 6), SKIN_FAT: (-108, 5), SKIN: (20, 15), MUSCLE: ((52, 57, 62, 59), 6),
    CORTEX: (620, 130), OUTSIDE: (-1000, 0), GAS: (-960, 25), FLUID: (12, 7), CHYME: (28, 14),
    STOOL: (10, 30), MEDULLA: ((32, 80, 165, 165), 10), SINUS: (-30, 25),
    MYOCARDIUM: ((45, 95, 100, 85), 8), VESSEL: ((41, 105, 168, 130), 14),
}  # fmt: skip
_SOFT = ((40.0, 58.0, 65.0, 60.0), 8.0)
_ARTERIES, _VEINS = (54, 55, 56, 57, 58, 65, 66), (59, 60, 61, 62, 67, 68)
_LUNGS, _BONES = range(10, 15), (*range(25, 51), *range(69, 79), *range(91, 116))
_MUSCLES = range(80, 90)
# What a drawn mean may be in a patient of means drawn wide; the others follow `_HU`.
_WIDE_LABELS = (1, 2, 3, 5, 7, 8, 9, 17, 22, 51, 52, 53, 63, 64, MEDULLA, MYOCARDIUM, VESSEL)
_HOLLOW_WALLS = (STOMACH, 15, 18, 19, COLORECTUM)
# HU of unevenness over some 28 mm and some 7 mm; of others 3 and 4.
_TEXTURE = {
    1: (4, 5), 2: (5, 9), 3: (5, 9), 5: (5, 5), 7: (7, 16), 51: (6, 3), 52: (2, 2), 4: (1, 1),
    21: (1, 1), GAS: (0, 8), FLUID: (3, 4), CHYME: (10, 22), STOOL: (60, 170), FAT: (5, 7),
    SKIN_FAT: (4, 6), MUSCLE: (5, 9), CORTEX: (90, 140), MEDULLA: (8, 14), SINUS: (10, 40),
    OUTSIDE: (0, 0), SKIN: (5, 12),
}  # fmt: skip


@dataclass(frozen=True)
class TissueHU:
    """HU of every material of one patient, by code.

    Attributes:
        phase: one of `body.PHASES`, NON_CONTRAST or NO_PHASE.
        mean: HU.
        coarse, fine: standard deviation within the material over some 28 mm and some 7 mm (HU).
    """

    phase: str
    mean: Float[np.ndarray, " materials"]
    coarse: Float[np.ndarray, " materials"]
    fine: Float[np.ndarray, " materials"]


def draw_tissue_hu(rng: np.random.Generator) -> TissueHU:
    """Draw phase, means and textures of a patient."""
    phase = str(rng.choice(list(PHASE_ODDS), p=list(PHASE_ODDS.values())))
    wide = rng.random() < WIDE_SHARE
    centre, spread = _of_phase(phase)
    mean = centre + spread * rng.standard_normal(MATERIALS, dtype=np.float32).clip(-2, 2)
    mean[3], mean[14] = mean[2] + rng.normal(0, 2), mean[10:14].mean()
    if wide:
        _widen(rng, mean)
    else:
        # Contrast comes earlier or later, more or less of it.
        mean[5] += rng.uniform(*FATTY_LIVER_HU) if rng.random() < FATTY_LIVER_SHARE else 0
    if rng.random() < ORAL_CONTRAST_SHARE:
        mean[FLUID] = rng.uniform(*ORAL_CONTRAST_HU)
        mean[CHYME] = mean[FLUID] * rng.uniform(0.4, 1)
    if phase == "delayed" and rng.random() < EXCRETION_SHARE:
        mean[21] = rng.uniform(60, 500)
        mean[SINUS] = rng.uniform(150, 500)
    coarse, fine = np.full((2, MATERIALS), 4, np.float32)
    for code, (low, high) in _TEXTURE.items():
        coarse[code], fine[code] = low, high
    for codes, low, high in ((_LUNGS, 25, 35), (_BONES, 30, 55), (_MUSCLES, 5, 9)):
        coarse[list(codes)], fine[list(codes)] = low, high
    strength = np.float32(rng.uniform(0.6, 1.5))
    return TissueHU(NO_PHASE if wide else phase, mean, strength * coarse, strength * fine)


def _of_phase(phase: str) -> Float[np.ndarray, "2 materials"]:
    """Return the mean HU of every material in a phase, and the spread between patients."""
    table = {
        **dict.fromkeys((*_LUNGS, 16), (-830.0, 35.0)),
        **dict.fromkeys(_BONES, (185.0, 45.0)),
        **dict.fromkeys(_MUSCLES, _HU[MUSCLE]),
        **dict.fromkeys(_ARTERIES, _HU[52]),
        **dict.fromkeys(_VEINS, _HU[63]),
        **_HU,
    }
    at = _COLUMNS.index(phase)
    rows = (table.get(code, _SOFT) for code in range(MATERIALS))
    pairs = [(mean[at] if isinstance(mean, tuple) else mean, spread) for mean, spread in rows]
    return np.array(pairs, np.float32).T


def _widen(rng: np.random.Generator, mean: np.ndarray) -> None:
    """Replace the means of solid organs, vessels and walls by ones of no phase."""
    codes = list(_WIDE_LABELS)
    mean[codes] = rng.uniform(*WIDE_HU, len(codes))
    mean[3] = mean[2]
    walls = rng.uniform(40, 110)
    mean[list(_HOLLOW_WALLS)] = walls + rng.normal(0, 8, len(_HOLLOW_WALLS))
    for code, (low, high) in {
        FAT: (-125, -75), SKIN_FAT: (-125, -80), MUSCLE: (30, 90), CORTEX: (350, 1000),
        FLUID: (-5, 30), CHYME: (0, 60),
    }.items():  # fmt: skip
        mean[code] = rng.uniform(low, high)
    mean[list(_MUSCLES)] = mean[MUSCLE]
    mean[list(_BONES)] = rng.uniform(120, 350)


# Tissue -> code of the voxels without a label, and of those whose label does not say it.
CODE_OF_TISSUE = {
    Tissue.OUTSIDE: OUTSIDE,
    Tissue.FAT: FAT,
    Tissue.SKIN_FAT: SKIN_FAT,
    Tissue.MUSCLE: MUSCLE,
    Tissue.BONE: 27,
    Tissue.GAS: GAS,
    Tissue.CONTENT: CHYME,
    Tissue.LUNG: 11,
}
# Content of a hollow organ by its label.
CONTENT_OF = {4: 4, 6: CHYME, 15: FLUID, 18: FLUID, 19: FLUID, COLORECTUM: STOOL, 21: 21}
