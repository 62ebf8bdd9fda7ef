"""Statements of a chain as (subject, relation, object) triples in a closed vocabulary.

A subject is an organ (Table 10, as a sentence names it), `lungs` or `kidneys` where the side is
open, `lymph nodes`, `tumour` (of a stage), or `abdomen`: the scan as a whole. Three levels follow
from the kind of the object, as in the paper's section 4.1: findings are observed, impressions are
concluded from findings, long reasoning is concluded from both.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tumorchain_jax.anatomy.organs import display_name

HAS, LACKS, SUGGESTS, STAGE = "has", "lacks", "suggests", "stage"
LESION, METASTASIS, TUMOUR, ABNORMALITY = "lesion", "metastasis", "tumour", "abnormality"
ENLARGED_NODES, NODES, ABDOMEN, ANY_TUMOUR = "enlarged nodes", "lymph nodes", "abdomen", "tumour"
FINDING, IMPRESSION, LONG_REASONING = "finding", "impression", "long reasoning"
LEVELS = (FINDING, IMPRESSION, LONG_REASONING)

# Kind of an object -> its level, and its harm: how much a wrong or missing statement of the kind
# weighs. A missed or invented tumour or a wrong organ 1; what decides T, N or M one half; an
# attribute or another finding one quarter; a normal organ nothing (the form of CRIMSON's weights).
KINDS: dict[str, tuple[str, float]] = {
    "normal": (FINDING, 0.0),
    "lesion": (FINDING, 1.0),
    "nodes": (FINDING, 0.5),
    "metastasis": (FINDING, 0.5),
    **dict.fromkeys(
        ("part", "density", "shape", "boundary", "others", "depth", "count", "size", "third",
         "node count", "condition", "benign"),
        (FINDING, 0.25),
    ),
    "tumour": (IMPRESSION, 1.0),
    **dict.fromkeys(("T", "N", "M"), (LONG_REASONING, 0.5)),
}  # fmt: skip
EXISTENCE = ("normal", "lesion", "nodes", "metastasis", "condition", "benign")
"""Kinds of findings that say that something is there, or that nothing is."""

_SIDES = {"lungs": ("left lung", "right lung"), "kidneys": ("left kidney", "right kidney")}
_LEFT_LUNG, _RIGHT_LUNG = {10, 11}, {12, 13, 14}


class Triple(NamedTuple):
    """One statement.

    Attributes:
        kind: of the object, one of `KINDS`.
    """

    subject: str
    relation: str
    object: str
    kind: str

    @property
    def level(self) -> str:
        """The chain that it belongs to: finding, impression or long reasoning."""
        return KINDS[self.kind][0]

    @property
    def harm(self) -> float:
        """Weight of a wrong or missing statement of this kind."""
        return KINDS[self.kind][1]

    def __str__(self) -> str:
        return f"({self.subject}, {self.relation}, {self.object})"


def subject_of(labels: Iterable[int]) -> str | None:
    """Name the subject of an organ mention with these merged labels; None for several."""
    named = set(labels)
    if named <= _LEFT_LUNG:
        return "left lung"
    if named <= _RIGHT_LUNG:
        return "right lung"
    if named <= _LEFT_LUNG | _RIGHT_LUNG:
        return "lungs"
    named -= {23} if len(named) > 1 else set()  # a kidney's cyst is in the kidney
    if named == {2, 3}:
        return "kidneys"
    return display_name(named.pop()) if len(named) == 1 else None


def covers(general: str, particular: str) -> bool:
    """Whether a subject is another one, or has it as a side."""
    return general == particular or particular in _SIDES.get(general, ())


def same_place(a: str, b: str) -> bool:
    """Whether two subjects may be one: the same, or one the pair of the other."""
    return covers(a, b) or covers(b, a)
