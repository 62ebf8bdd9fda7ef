"""Order, sides and front of the organs in a label map, and their volumes.

Each rule is a vote: of two organs the one must lie above, to the right of, or in front of the
other. Votes against outnumber votes for when a map, or a scan and its map together, are upside
down, mirrored or back to front; where organs are in places that no turn explains, the ids are not
TotalSegmentator's.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product

import numpy as np

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.scope.organ_table import OrganTable

Pair = tuple[int, int]
RIGHT, FRONT, UP = range(3)
LUNGS, HIPS, SPINE = (10, 11, 12, 13, 14), (77, 78), tuple(range(26, 51))

# From above: which organs lie at one level of the body.
LEVELS: tuple[Sequence[int], ...] = (
    (90, 91),  # brain, skull
    (*LUNGS, 51),
    (1, 5, 6),  # spleen, liver, stomach
    (2, 3),  # kidneys
    (21, 22, 25, *HIPS),  # bladder, prostate, sacrum, hips
    (75, 76),  # femora
)
ABOVE: tuple[Pair, ...] = (
    *(pair for high, low in combinations(LEVELS, 2) for pair in product(high, low)),
    *((b, a) for a, b in pairwise(SPINE)),
    *((a, b) for first in (92, 104) for a, b in pairwise(range(first, first + 12))),
)
# The right one first. Liver, gallbladder and vena cava; paired organs; ribs.
RIGHT_OF: tuple[Pair, ...] = (
    *((5, 1), (5, 6), (4, 1), (4, 3), (2, 1), (5, 3), (63, 52)),
    *((2, 3), (8, 9), (12, 10), (14, 11), (14, 10), (12, 11)),
    *((right, left) for left, right in ((69, 70), (71, 72), (73, 74), (75, 76), HIPS)),
    *((left + 1, left) for left in (80, 82, 84, 86, 88)),
    *((left + 12, left) for left in range(92, 104)),
)
BEHIND = (2, 3, 25, 79, 86, 87, *SPINE)
IN_FRONT_OF: tuple[Pair, ...] = tuple((a, b) for a in (4, 5, 6, 7, 20, 21, 51) for b in BEHIND)
# Apart by less, two centres say nothing.
MARGIN_MM = (10.0, 15.0, 10.0)
WORDS = (
    ("orientation", "mirrored", "{} left of {}", "liver right, spleen left"),
    ("orientation", "back to front", "{} behind {}", "the spine behind the organs"),
    (
        "orientation",
        "upside down",
        "{} below {}",
        "lungs over liver over hips",
    ),
)

# ml, least and greatest, far beyond those of adults: liver 1,500 (600 to 3,000), spleen 215 (up to
# 3,000 in splenomegaly), kidney 150 (polycystic up to 3,000), pancreas 70, adrenal 4 (tumours up to
# 50), heart 700, aorta 150: Geraghty et al., Abdom Imaging 2004; Prassopoulos et al., Eur Radiol
# 1997 (spleen); Cheong et al., Clin J Am Soc Nephrol 2007 (kidney); Saisho et al., Clin Anat 2007
# (pancreas); the others are wide guesses around the means of TotalSegmentator's cohort
# (Wasserthal et al., Radiol Artif Intell 2023). Of a cut organ only the greatest counts.
VOLUME_ML: dict[int, tuple[float, float]] = {
    1: (20, 3500), 2: (15, 3500), 3: (15, 3500), 4: (0.5, 500), 5: (200, 6000), 6: (10, 4000),
    7: (5, 400), 8: (0.3, 80), 9: (0.3, 80), **dict.fromkeys(LUNGS, (15, 4000)), 15: (1, 250),
    16: (2, 200), 17: (0.5, 400), 18: (10, 6000), 19: (3, 500), 20: (20, 8000), 21: (1, 3000),
    22: (2, 500), 25: (40, 600), **dict.fromkeys(SPINE, (2, 200)), 51: (50, 3000), 52: (10, 1500),
    63: (3, 500), 64: (1, 300), **dict.fromkeys(HIPS, (50, 1200)), 86: (30, 2000), 87: (30, 2000),
    88: (20, 1500), 89: (20, 1500), **dict.fromkeys(range(92, 116), (0.3, 80)),
}  # fmt: skip
# mm between the centres of neighbouring vertebrae, C7 to L5: 15 to 40 in adults (Panjabi et al.,
# Spine 1991 and 1992: bodies of 13 to 29 mm, discs of 3 to 12 mm); wide for children and scoliosis.
VERTEBRAE_MM, FEWEST_STEPS = (9.0, 60.0), 3
MANY_LARGE, MANY_SMALL = 2, 3
"""So many organs over their range refuse the map; so many under it (a machine's map may hold a
fragment of an organ) give a warning."""


def check_position(table: OrganTable) -> Iterator[Finding]:
    """Find a label map that is upside down, mirrored, back to front, or has impossible volumes."""
    votes = (
        [*_votes(table, RIGHT_OF, RIGHT), *_midline_votes(table)],
        _votes(table, IN_FRONT_OF, FRONT),
        _votes(table, ABOVE, UP),
    )
    for cast, (field, turned, how, expected) in zip(votes, WORDS, strict=True):
        against = [pair for pair, right in cast if not right]
        if not against:
            continue
        first = how.format(*against[0])
        if 2 * len(against) > len(cast):
            hint = f"the label map, or the scan with it, is {turned}, or its ids are others"
            yield Finding(True, field, first, expected, hint)
        elif 10 * len(against) > len(cast):
            hint = "check the ids and the geometry of the label map"
            yield Finding(False, field, first, expected, hint)
    yield from _check_volumes(table)
    steps = [
        float(np.linalg.norm(table.centre[a] - table.centre[b]))
        for a, b in pairwise(SPINE)
        if table.has(a) and table.has(b) and not (table.cut[a] or table.cut[b])
    ]
    least, greatest = VERTEBRAE_MM
    if len(steps) >= FEWEST_STEPS and not least <= np.median(steps) <= greatest:
        found = f"vertebrae {np.median(steps):.0f} mm apart"
        hint = "check the spacing of the scan"
        yield Finding(True, "spacing", found, f"{least:g} to {greatest:g} mm", hint)


def _votes(
    table: OrganTable, pairs: Sequence[Pair], axis: int
) -> list[tuple[tuple[str, str], bool]]:
    """The names of each pair of organs that is there and clearly apart, and if it is in order."""
    found = []
    for one, other in pairs:
        if table.has(one) and table.has(other):
            apart = table.centre[one, axis] - table.centre[other, axis]
            if abs(apart) > MARGIN_MM[axis]:
                found.append(((_name(one), _name(other)), bool(apart > 0)))
    return found


def _midline_votes(table: OrganTable) -> list[tuple[tuple[str, str], bool]]:
    """The liver lies right of the middle of the body, the spleen left of it."""
    found = []
    for number, sign in ((5, 1), (1, -1)):
        apart = sign * (table.centre[number, RIGHT] - table.middle)
        if table.has(number) and abs(apart) > MARGIN_MM[RIGHT]:
            names = (_name(number), "the middle")
            found.append((names if sign > 0 else names[::-1], bool(apart > 0)))
    return found


def _check_volumes(table: OrganTable) -> Iterator[Finding]:
    large, small = [], []
    for number, (least, greatest) in VOLUME_ML.items():
        ml = table.ml[number]
        line = f"{_name(number)} {ml:.1f} ml ({least:g} to {greatest:g})"
        if ml > greatest:
            large.append(line)
        elif table.samples[number] and ml < least and not table.cut[number]:
            small.append(line)
    outside = large + (small if len(small) >= MANY_SMALL else [])
    if outside:
        more = f" and {len(outside) - 2} more" if len(outside) > 2 else ""
        found = ", ".join(outside[:2]) + more
        hint = "check the ids of the label map and the spacing of the scan"
        refuse = len(large) >= MANY_LARGE
        yield Finding(refuse, "volumes", found, "volumes within their ranges", hint)


def _name(number: int) -> str:
    return TOTALSEGMENTATOR[number].replace("_", " ")
