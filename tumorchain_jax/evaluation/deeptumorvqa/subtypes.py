"""The 42 question subtypes: type, kind of answer, unit (facts of the benchmark's metadata)."""

import re
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.evaluation.reading.numbers import Quantity

Kind = Literal["numeric", "binary", "categorical"]


@dataclass(frozen=True)
class Subtype:
    """A question subtype.

    Attributes:
        name: as version 2 writes it.
        type: recognition, measurement, visual reasoning or medical reasoning.
        kind: what it is scored as in free form.
        quantity: what its numbers are; None unless numeric.
    """

    name: str
    type: str
    kind: Kind
    quantity: Quantity | None = None


_RECOGNITION, _MEASUREMENT, _VISUAL, _MEDICAL = (
    "recognition",
    "measurement",
    "visual reasoning",
    "medical reasoning",
)
TYPES = (_RECOGNITION, _MEASUREMENT, _VISUAL, _MEDICAL)
UNITS: dict[Quantity, str] = {
    "volume": "cm3",
    "HU": "HU",
    "ratio": "",
    "percent": "%",
    "length": "cm",
    "count": "",
}

_BINARY: dict[str, tuple[str, ...]] = {
    _RECOGNITION: (
        "PDAC existence",
        "PNET existence",
        "colon lesion existence",
        "kidney cyst existence",
        "kidney lesion existence",
        "kidney tumor existence",
        "liver lesion existence",
        "pancreatic lesion existence",
        "splenomegaly detection",
    ),
    _VISUAL: ("lesion outlier", "organ enlargement"),
    _MEDICAL: (
        "pancreatic cyst resectability",
        "pancreatic steatosis",
        "portal hypertension assessment",
        "pseudocyst determination",
    ),
}
_CATEGORICAL: dict[str, tuple[str, ...]] = {
    _VISUAL: (
        "adjacent organ",
        "bilateral kidney asymmetry",
        "inter-segment comparison",
        "kidney volume comparison",
        "largest lesion attenuation",
        "largest lesion location",
        "liver lesion clustering",
        "multi-organ lesion burden comparison",
    ),
    _MEDICAL: (
        "PDAC vs PNET classification",
        "fatty liver",
        "hepatic steatosis grading",
        "lesion type classification",
        "pancreatic lesion resectability",
        "pancreatic tumor staging",
        "renal mass characterization",
        "splenomegaly grading",
    ),
}
_NUMERIC: dict[str, dict[str, Quantity]] = {
    _MEASUREMENT: {
        "lesion volume measurement": "volume",
        "organ HU measurement": "HU",
        "organ HU ratio": "ratio",
        "organ volume measurement": "volume",
        "tumor burden percentage": "percent",
    },
    _VISUAL: {
        "largest lesion diameter": "length",
        "largest lesion slice": "percent",
        "lesion count by location": "count",
        "lesion counting": "count",
        "organ aggregation": "volume",
        "tumor organ HU difference": "HU",
    },
}

SUBTYPES: dict[str, Subtype] = {
    each.name: each
    for each in (
        *(Subtype(n, t, "binary") for t, names in _BINARY.items() for n in names),
        *(Subtype(n, t, "categorical") for t, names in _CATEGORICAL.items() for n in names),
        *(Subtype(n, t, "numeric", q) for t, row in _NUMERIC.items() for n, q in row.items()),
    )
}
"""Name, as version 2 writes it -> subtype."""


def key(name: str) -> str:
    """Return a name for comparing: lower case; spaces, underscores and hyphens are alike."""
    return re.sub(r"[\s_\-]+", " ", name).strip().lower()


_BY_KEY = {key(name): subtype for name, subtype in SUBTYPES.items()}


def subtype_named(name: str) -> Subtype | None:
    """Return the subtype of a name in any style; None if there is no such subtype."""
    return _BY_KEY.get(key(name))
