"""Statements: what a test report truly says, in the canonical words of the truth.

The words are those of the task (TumorCoT's attributes and Table 10's organs). They are written down
here once more on purpose: nothing of the engine that reads reports is imported.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

FINDINGS = (
    "mass", "tumour", "cyst", "haemangioma", "metastasis", "lymph node", "calcification",
    "wall thickening", "ductal dilatation", "rim enhancement", "necrosis", "cirrhosis",
    "splenomegaly", "pancreatitis", "diverticulum", "gallstone", "fatty area", "accessory spleen",
    "granuloma", "vascular calcification",
)  # fmt: skip
SHAPES = ("round", "oval", "lobulated", "irregular")
BOUNDARIES = ("well-defined", "ill-defined")
DENSITIES = ("hypodense", "isodense", "hyperdense", "mixed", "cystic")
DEPTHS = ("inner wall", "wall", "fat", "surface", "neighbour")
OTHERS = (
    "calcification", "rim enhancement", "wall thickening", "ductal dilatation", "necrosis",
)  # fmt: skip
VALUES: dict[str, tuple[str, ...]] = {
    "finding": FINDINGS,
    "shape": SHAPES,
    "boundary": BOUNDARIES,
    "density": DENSITIES,
    "depth": DEPTHS,
    "others": OTHERS,
    "sex": ("female", "male"),
}
"""Attribute -> its closed set of values. Size, count, nodes and age are numbers; impression and
histology name diseases; T, N and M are categories."""
NUMBERS = ("size", "count", "nodes", "age")


@dataclass(frozen=True, order=True)
class Statement:
    """One thing that a report says.

    Attributes:
        organ: `display_name` of a merged label; empty where none is named.
        part: of the organ, a name of `SUB_ORGANS`, or empty.
        lesion: number within case and organ, from 1; 0 for the organ as a whole.
        attribute: `finding`, `shape`, `boundary`, `density`, `count`, `size`, `depth`, `others`,
            `nodes`, `impression`, `histology`, `T`, `N`, `M`, `age` or `sex`.
        value: canonical word or number.
        unit: `mm`, `years` or empty.
        polarity: `present` or `absent`.
        certainty: `definite`, `probable` or `possible`.
        time: `current` or `prior`.
        source: `radiology` or `pathology`.
    """

    organ: str
    part: str
    lesion: int
    attribute: str
    value: str
    unit: str = ""
    polarity: str = "present"
    certainty: str = "definite"
    time: str = "current"
    source: str = "radiology"

    @property
    def is_current(self) -> bool:
        """Whether something is said to be there now."""
        return self.polarity == "present" and self.time == "current"

    def but(self, **changes: Any) -> "Statement":
        """Return it with some fields changed."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)
