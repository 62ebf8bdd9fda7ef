"""What is true of a patient as triples, and what a statement is worth beside it."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.evaluation.chain.facts import Facts
from tumorchain_jax.evaluation.chain.triples import (
    ABDOMEN,
    ABNORMALITY,
    ANY_TUMOUR,
    ENLARGED_NODES,
    HAS,
    LACKS,
    LESION,
    METASTASIS,
    NODES,
    STAGE,
    SUGGESTS,
    TUMOUR,
    Triple,
    same_place,
    subject_of,
)
from tumorchain_jax.phantoms.lesions import NONE

Worth = Literal["right", "wrong", "unverified"]
# A reference that reports a tumour reports all of them: what it does not name is not there.
_CLOSED = ("lesion", "tumour", "metastasis", "nodes")
# Kinds of which a subject has one value.
_EXCLUSIVE = (
    *("density", "shape", "boundary", "depth", "count", "node count", "third", "part", "others"),
    *("size", "T", "N", "M"),
)
_SIZE_SHARE, _SIZE_MM = 0.2, 3.0
_ILL = ("lesion", "metastasis", "condition", "benign", "tumour")


@dataclass(frozen=True)
class Truth:
    """The reference that statements are compared with.

    Attributes:
        required: what a complete report says.
        allowed: what is right to say as well.
        complete: whether all that is not among them is false, as of a digital patient.
    """

    required: tuple[Triple, ...]
    allowed: frozenset[Triple] = field(default_factory=frozenset)
    complete: bool = False

    @cached_property
    def known(self) -> frozenset[Triple]:
        """All that is true."""
        return frozenset(self.required) | self.allowed

    def worth(self, said: Triple) -> Worth:
        """Compare a statement with the truth."""
        known = self.known
        if any(same_statement(true, said) for true in known):
            return "right"
        there = [true for true in known if same_place(true.subject, said.subject)]
        if said.relation == LACKS:
            return self._denial(said, there)
        rivals = [t for t in there if t.kind == said.kind and t.relation != LACKS]
        if said.kind == "size":  # a word and a number of mm cannot be compared
            rivals = [t for t in rivals if (_mm(t.object) is None) == (_mm(said.object) is None)]
            if there and not rivals and not self.complete:
                return "unverified"
        if said.kind in _EXCLUSIVE and rivals:
            return "wrong"
        if said.kind == "third":  # digital patients' facts do not hold it
            return "unverified"
        denied = any(
            true.relation == LACKS and (true.kind in (said.kind, "normal")) for true in there
        )
        closed = said.kind in _CLOSED and any(true.kind in _CLOSED for true in known)
        return "wrong" if denied or closed or self.complete else "unverified"

    def harm_if_wrong(self, said: Triple) -> float:
        """Harm of a wrong statement: of a denial, that of what is there all the same."""
        there = [
            true.harm
            for true in self.known
            if said.relation == LACKS != true.relation
            and (said.subject == ABDOMEN or same_place(true.subject, said.subject))
            and (said.kind == "normal" or (true.kind, true.object) == (said.kind, said.object))
        ]
        return max([said.harm, *there])

    def _denial(self, said: Triple, there: Collection[Triple]) -> Worth:
        """Worth of a statement that something is not there."""
        known = self.known
        if said.subject == ABDOMEN:
            held = any(t.kind == said.kind and t.relation != LACKS for t in known)
        elif said.kind == "normal":
            held = any(t.kind in _ILL and t.relation != LACKS for t in there)
        else:
            held = any((t.kind, t.object) == (said.kind, said.object) and t.relation != LACKS
                       for t in there)  # fmt: skip
        if held:
            return "wrong"
        silent = not there and not (said.subject == ABDOMEN and known)
        closed = said.kind in _CLOSED and any(true.kind in _CLOSED for true in known)
        return "right" if self.complete or closed or not silent else "unverified"


def same_statement(a: Triple, b: Triple) -> bool:
    """Whether two statements say the same; sizes agree within 20 %, or 3 mm."""
    if (a.relation, a.kind) != (b.relation, b.kind) or not same_place(a.subject, b.subject):
        return False
    if a.kind != "size" or a.object == b.object:
        return a.object == b.object
    mm_a, mm_b = _mm(a.object), _mm(b.object)
    if mm_a is None or mm_b is None:
        return False
    return abs(mm_a - mm_b) <= max(_SIZE_MM, _SIZE_SHARE * max(mm_a, mm_b))


def _mm(size: str) -> float | None:
    match = re.fullmatch(r"([\d.]+) mm", size)
    return float(match[1]) if match else None


def truth_of(facts: Facts) -> Truth:
    """Turn the facts about a digital patient into triples; no text and no model is in between."""
    organ = display_name(facts.organ) if facts.organ else ""
    required: list[Triple] = []
    allowed: set[Triple] = set()
    if organ:
        required.append(Triple(organ, HAS, LESION, "lesion"))
        required += _traits(organ, facts)
        allowed |= {Triple(organ, HAS, lesion.part, "part") for lesion in facts.lesions}
        allowed |= {Triple(organ, HAS, f"{lesion.mm:.0f} mm", "size") for lesion in facts.lesions}
        allowed |= {Triple(organ, HAS, lesion.size, "size") for lesion in facts.lesions}
    required += [_normal(o) for o in facts.normal]
    for label in facts.metastases:
        required.append(Triple(_subject(label), HAS, METASTASIS, "metastasis"))
    required += [Triple(_subject(o), HAS, what, "condition") for o, what in facts.conditions]
    required += [Triple(_subject(o), HAS, name, "benign") for o, name, _ in facts.benign]
    required.append(Triple(NODES, HAS if facts.nodes else LACKS, ENLARGED_NODES, "nodes"))
    if facts.nodes:
        required.append(Triple(NODES, HAS, str(facts.nodes), "node count"))
    if facts.suspected:
        required.append(Triple(display_name(facts.suspected), SUGGESTS, TUMOUR, "tumour"))
        if not facts.metastases:
            required.append(Triple(ABDOMEN, LACKS, METASTASIS, "metastasis"))
    else:
        required.append(Triple(ABDOMEN, LACKS, TUMOUR, "tumour"))
    for letter, category in zip("TNM", facts.stage or (), strict=False):
        required.append(Triple(ANY_TUMOUR, STAGE, category, letter))
    return Truth(tuple(dict.fromkeys(required)), frozenset(allowed), complete=True)


def _traits(organ: str, facts: Facts) -> list[Triple]:
    """What the lesions look like; of several, the part and size of the largest."""
    largest = facts.lesions[0]
    traits = [
        Triple(organ, HAS, largest.part, "part"),
        Triple(organ, HAS, str(len(facts.lesions)), "count"),
        Triple(organ, HAS, f"{largest.mm:.0f} mm", "size"),
        Triple(organ, HAS, facts.density, "density"),
        Triple(organ, HAS, facts.shape, "shape"),
        Triple(organ, HAS, facts.border, "boundary"),
    ]
    if facts.other != NONE:
        traits.append(Triple(organ, HAS, facts.other, "others"))
    if facts.depth:
        traits.append(Triple(organ, HAS, facts.depth, "depth"))
    return traits


def _normal(label: int) -> Triple:
    return Triple(_subject(label), LACKS, ABNORMALITY, "normal")


def _subject(label: int) -> str:
    return subject_of((label,)) or display_name(label)
