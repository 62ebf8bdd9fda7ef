"""Label maps with one or two ids, as of a binary mask or of a liver and its tumours.

Ids 1 and 2 are spleen and right kidney to TotalSegmentator. A map of a liver and its tumours
(LiTS, MSD) and a binary mask use the same numbers for other things.
"""

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.scope.organ_table import OrganTable
from tumorchain_jax.scope.position import RIGHT

SPLEEN, KIDNEY = 1, 2
# The spleen's centre lies 60 to 120 mm left of the middle; a mask of all organs is in the middle.
FEWEST_MM_LEFT = 20.0
# The right kidney and the spleen have the aorta, the spine or the left kidney between them.
TOUCHING = 0.02
"""Share of the smaller one's voxels that lie beside the other."""

EXPECTED = "ids of TotalSegmentator v2, task `total` (1 spleen, 2 right kidney, 5 liver)"
HINT = "renumber the map: it looks binary, or like one of a liver (1) and its tumours (2)"


def check_few_ids(table: OrganTable) -> Iterator[Finding]:
    """Find a map whose ids 1 and 2 are not spleen and right kidney; silent where others exist."""
    ids = {number for number in np.nonzero(table.samples)[0].tolist() if number}
    if not ids or not ids <= {SPLEEN, KIDNEY}:
        return
    found = f"nothing but id {' and '.join(map(str, sorted(ids)))}"
    if table.has(SPLEEN):
        left = table.middle - table.centre[SPLEEN, RIGHT]
        if left < FEWEST_MM_LEFT:
            found += f", with id {SPLEEN} (the spleen) {'in the middle' if left > -20 else 'right'}"
            yield Finding(True, "ids", found, EXPECTED, HINT)
            return
    if ids == {SPLEEN, KIDNEY} and _touch(table):
        found += " that touch each other, as spleen and right kidney do not"
        yield Finding(True, "ids", found, EXPECTED, HINT)
        return
    yield Finding(False, "ids", found, "the ids of several organs", f"make sure of the ids: {HINT}")


def _touch(table: OrganTable) -> bool:
    one, other = table.labels == SPLEEN, table.labels == KIDNEY
    beside = int((ndimage.binary_dilation(one) & other).sum())
    return beside > TOUCHING * max(1, min(one.sum(), other.sum()))
