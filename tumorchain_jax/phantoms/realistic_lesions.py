"""Tumours of realistic patients: small and large, faint and conspicuous."""

from collections.abc import Mapping

import numpy as np

from tumorchain_jax.phantoms.lesions import (
    BORDERS,
    DENSITIES,
    DEPTHS,
    HOLLOW,
    IRREGULAR_GROWS,
    LARGEST_MM,
    OTHERS,
    SHAPES,
    LesionStyle,
    Plan,
)

REALISTIC_STYLE = LesionStyle(
    size_limits_mm=(20.0, 50.0),
    fewest_voxels=3,
    sharp_edge_mm=1.5,
    rim_hu=45.0,
    speck_mm=2.0,
    specks=2,
    duct_mm=3.0,
    thick_mm=8.0,
    thick_hu=25.0,
)
DIAMETER_MM, CONTRAST_HU = (8.0, 100.0), (20.0, 120.0)  # both log-uniform
# The darkest that solid tumour tissue is: cysts and fat are darker. A hypodense lesion of an organ
# that leaves less than the smallest contrast above it does not occur.
TUMOUR_HU = 20.0
TEXTURE_SHARE = (0.05, 0.25)  # of the contrast, as standard deviation within a lesion
COUNT_ODDS = (0.5, 0.27, 0.23)
SMALLER_SHARE = (0.4, 1.0)  # of the largest lesion's diameter: what the others have
NECROSIS_SHARE, NECROSIS_FROM_MM, DEAD_SHARE = 0.4, 20.0, (0.3, 0.7)
STRANDS_SHARE = 0.5  # of the tumours that leave the wall, or lie in a solid organ


def draw_realistic_plan(
    rng: np.random.Generator, organs: tuple[int, ...], organ_hu: Mapping[int, float]
) -> Plan:
    """Draw a disease of one of `organs`: one to three lesions.

    Args:
        organ_hu: of each organ in this patient; it limits how dark a lesion may be.
    """
    organ = int(rng.choice(organs))
    count = int(rng.choice((1, 2, 3), p=COUNT_ODDS))
    shape, border = str(rng.choice(SHAPES)), str(rng.choice(BORDERS))
    low, high = DIAMETER_MM[0], min(DIAMETER_MM[1], LARGEST_MM[organ])
    high /= IRREGULAR_GROWS if shape == "irregular" else 1
    largest = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    others = largest * rng.uniform(*SMALLER_SHARE, count - 1)
    diameters = (largest, *np.sort(others.clip(low))[::-1].tolist())
    density = DENSITIES[int(rng.random() < 0.4)]
    room = organ_hu[organ] - TUMOUR_HU
    faintest, strongest = CONTRAST_HU
    if density == "hypodense" and room < faintest:
        density = "hyperdense"
    if density == "hypodense":
        strongest = min(strongest, room)
    contrast = float(np.exp(rng.uniform(np.log(faintest), np.log(strongest))))
    other, depth = str(rng.choice(OTHERS[organ])), DEPTHS[rng.integers(len(DEPTHS))]
    necrotic = density == "hypodense" and largest >= NECROSIS_FROM_MM
    dead = rng.uniform(*DEAD_SHARE) if necrotic and rng.random() < NECROSIS_SHARE else 0.0
    strands = (organ not in HOLLOW or depth != "wall") and rng.random() < STRANDS_SHARE
    signed = -contrast if density == "hypodense" else contrast
    return Plan(
        organ, diameters, density, shape, border, other, depth, signed, float(dead), bool(strands)
    )
