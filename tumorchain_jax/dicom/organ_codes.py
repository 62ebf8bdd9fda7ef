"""SNOMED CT codes of the organs of TotalSegmentator v2 `total`.

`organ_codes.tsv` holds facts of TotalSegmentator's own table (totalsegmentator_snomed_mapping.csv,
Apache-2.0), one spelling corrected.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from pydicom.sr.coding import Code

ANATOMY = Code("123037004", "SCT", "Anatomical Structure")
ALTERED = Code("49755003", "SCT", "Morphologically Altered Structure")
KIDNEY = Code("64033007", "SCT", "Kidney")
SIDES = {"left": Code("7771000", "SCT", "Left"), "right": Code("24028007", "SCT", "Right")}


class OrganCode(NamedTuple):
    """How DICOM names an organ.

    Attributes:
        category: of the structure: anatomical, or altered.
        kind: the structure.
        side: left or right; None for an organ that there is once.
        site: the organ that an altered structure is in; None for an organ.
    """

    category: Code
    kind: Code
    side: Code | None
    site: Code | None


@cache
def organ_codes() -> dict[str, OrganCode]:
    """Return the codes by TotalSegmentator's names."""
    text = files("tumorchain_jax.dicom").joinpath("organ_codes.tsv").read_text("utf-8")
    codes = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        cyst = row["organ"].startswith("kidney_cyst")
        codes[row["organ"]] = OrganCode(
            ALTERED if cyst else ANATOMY,
            Code(row["code"], "SCT", row["meaning"]),
            SIDES.get(row["side"]),
            KIDNEY if cyst else None,
        )
    return codes
