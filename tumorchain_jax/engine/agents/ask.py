"""A question before it is worded: the answer, and the steps that lead to it, fenced by subtask.

The paper's third rule (11.3): a question's chain holds what its subtask needs and no more; where a
lesion lies is asked without its density, and without whether it is malignant.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tumorchain_jax.engine.agents.protocol import Chain, Summary, View
from tumorchain_jax.engine.agents.statements import LESIONS, NO_TUMOUR, TUMOUR
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.text.counts import SEVERAL

VALUES = {
    "shape": ("round", "oval", "lobulated", "irregular"),
    "boundary": ("well-defined", "ill-defined"),
    "density": ("hypodense", "isodense", "hyperdense", "mixed", "cystic"),
    "others": (
        "calcification", "rim enhancement", "wall thickening", "ductal dilatation", "necrosis",
    ),
}  # fmt: skip
"""Subtask -> the values that a lesion may have, all of them told apart by the answers' reader."""
ALIKE = {
    "cystic": ("hypodense", "mixed"),
    "hypodense": ("cystic",),
    "mixed": ("cystic", "hypodense", "hyperdense"),
    "round": ("oval",),
    "oval": ("round",),
}
"""Value -> others that may be right as well, so that they are never offered beside it."""
THIRDS = ("upper third", "middle third", "lower third")
COUNTS = ("1", "2", "3", "4", "5")
_PLACE = {"finding", "location"}
FENCES: dict[str, frozenset[str]] = {
    "organ_position": frozenset({"third", "box"}),
    "tumor_position": frozenset({*_PLACE, "impression"}),
    "segment_localization": frozenset(_PLACE),
    **{attribute: frozenset({*_PLACE, attribute}) for attribute in VALUES},
    "count": frozenset({*_PLACE, "count"}),
    "tumor": frozenset({*_PLACE, "size", "depth", "count", "imaging T", "T"}),
    "node": frozenset({*_PLACE, "nodes", "imaging N", "N"}),
    "metastasis": frozenset({*_PLACE, "count", "imaging M", "M"}),
}
"""Subtask -> the relations that a step of its chain may claim; a report's may claim all."""
YES, NO, NONE = "yes", "no", "none"


@dataclass(frozen=True)
class Told:
    """What the agents agreed to tell of one organ."""

    view: View
    chain: Chain
    summary: Summary


@dataclass(frozen=True)
class Ask:
    """A question before it is worded.

    Attributes:
        subtask: of `data.schema.SUBTASKS`.
        kind: how it is worded, see `questions.py`.
        organ: merged label that it is about, 0 for none in particular.
        words: what its wording names: `organ`, `lesion`, `value`, `part`.
        answer: as the summary gives it.
        options: for multiple choice, the answer among them; empty where it is open only.
        steps: that lead to the answer.
        facts, edges: ids that the answer rests on.
        search: whether the organs are looked at one after the other.
        normal: whether it is about an organ without findings.
    """

    subtask: str
    kind: str
    organ: int
    words: tuple[tuple[str, str], ...]
    answer: str
    options: tuple[str, ...]
    steps: Chain
    facts: tuple[str, ...]
    edges: tuple[str, ...] = ()
    search: bool = False
    normal: bool = False


def within(subtask: str, steps: Iterable[Step]) -> Chain:
    """Keep the steps that a subtask's fence lets in."""
    fence = FENCES.get(subtask)
    if fence is None:
        return tuple(steps)
    return tuple(
        step for step in steps if all(_fits(claim, subtask, fence) for claim in step.claims)
    )


def is_within(claim: Claim, fence: frozenset[str]) -> bool:
    """Whether a fence lets a claim's relation in; that there are several tells no number."""
    several = (claim.relation, claim.object) == ("count", SEVERAL) and "finding" in fence
    return claim.relation in fence or several


def _fits(claim: Claim, subtask: str, fence: frozenset[str]) -> bool:
    if not is_within(claim, fence):
        return False
    if claim.relation == "impression":
        return claim.object in (TUMOUR, NO_TUMOUR)
    if claim.relation != "finding":
        return True
    bare = claim.object.removeprefix("no ").removeprefix("possible ").removeprefix("probable ")
    if bare == "lymph node":
        return subtask == "node"
    return bare in LESIONS or bare in ("lesion", "abnormality")


def rests_on(steps: Iterable[Step]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the facts and of the edges that steps cite, each once."""
    claims = [claim for step in steps for claim in step.claims]
    facts = dict.fromkeys(id for claim in claims for id in claim.facts)
    return tuple(facts), tuple(dict.fromkeys(id for claim in claims for id in claim.edges))
