"""Facts compared with the truth: lesion with lesion, then attribute with attribute.

Lesions are paired before anything is compared, so that how they are numbered does not count, but
which size belongs to which lesion does.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.text.counts import SEVERAL
from tumorchain_jax.phantoms.reports.statements import FINDINGS, OTHERS, Statement

DESCRIBING = ("size", "shape", "boundary", "density", "others", "depth")
TNM = ("T", "N", "M")
LOCATION = "location"
ATTRIBUTES = (*DESCRIBING, "count", "nodes")
MEASURES = (LOCATION, *ATTRIBUTES, "impression", "histology", *TNM, "age", "sex")
"""What is scored, in the order of the table."""
_SOLID, _NODE = "mass", "lymph node"
SIZE_TOLERANCE_MM = 0.5


_DISEASES = {
    "cyst": "hepatic cyst", "haemangioma": "hepatic haemangioma",
    "metastasis": "liver metastasis", "pancreatitis": "acute pancreatitis",
}  # fmt: skip
_ORGANS = frozenset(map(display_name, range(len(ORGANS))))
_UNKNOWN = ("TX", "NX", "MX")


def place_of(said: "Said") -> tuple[str, str]:
    """Return organ and part; the lobes of a lung are organs of Table 10, not parts."""
    return (said.part, "") if said.part in _ORGANS else (said.organ, said.part)


def kind_of(value: str) -> str:
    """A mass and a tumour are one thing in a report."""
    return _SOLID if value == "tumour" else value


@dataclass
class Group:
    """What is said of one lesion, or of one finding of an organ as a whole.

    Attributes:
        organ: display name.
        kinds: findings that it is called.
        parts: places that are named.
        values: attribute -> values.
        facts: that say so; empty for the truth.
    """

    organ: str
    kinds: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    facts: list[Fact] = field(default_factory=list)


Said = Fact | Statement


def _attribute(said: Said) -> str:
    """Accompanying findings are findings, or the attribute `others`: it is the same."""
    return "others" if said.attribute == "finding" and said.value in OTHERS else said.attribute


def _source(said: Said) -> str:
    return said.source if isinstance(said, Statement) else said.source.kind


def groups_of(said: Iterable[Said]) -> list[Group]:
    """Gather what is said to be there now, lesion by lesion."""
    groups: dict[tuple[str, ...], Group] = {}
    for each in said:
        attribute = _attribute(each)
        if not each.is_current or attribute not in ("finding", *DESCRIBING):
            continue
        if attribute == "finding" and each.value not in FINDINGS:
            continue
        organ, part = place_of(each)
        key: tuple[str, ...] = (organ, str(each.lesion))
        if not each.lesion:
            key = (organ, "0", part, kind_of(each.value))
        group = groups.setdefault(key, Group(organ))
        if attribute == "finding":
            group.kinds.add(kind_of(each.value))
        else:
            group.values[attribute].add(each.value)
        if part:
            group.parts.add(part)
        if isinstance(each, Fact):
            group.facts.append(each)
    return list(groups.values())


@dataclass(frozen=True)
class Comparison:
    """Counts of one case.

    Attributes:
        right, wrong, missed: measure -> how often.
        unsaid: negated and earlier findings of the text.
        taken: those of them that became current facts.
        hedged: uncertain findings of the text that were found.
        sure: those of them that became definite facts.
        true: ids of facts that the truth bears out, and of those about what it does not tell.
        placed: ids of facts whose part of the organ is right.
    """

    right: Counter[str]
    wrong: Counter[str]
    missed: Counter[str]
    unsaid: int
    taken: int
    hedged: int
    sure: int
    true: frozenset[str]
    placed: frozenset[str]


def compare(facts: Sequence[Fact], truth: Sequence[Statement]) -> Comparison:
    """Compare the facts of a case with what its reports say."""
    return _Comparing(facts, truth).result()


class _Comparing:
    def __init__(self, facts: Sequence[Fact], truth: Sequence[Statement]):
        self.facts, self.truth = facts, truth
        self.right: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.true: set[str] = set()
        self.placed: set[str] = set()

    def result(self) -> Comparison:
        ct = [fact for fact in self.facts if _source(fact) == "radiology"]
        said = [each for each in self.truth if _source(each) == "radiology"]
        self._lesions(groups_of(ct), groups_of(said))
        self._numbers(ct, said)
        self._others()
        unsaid, taken = self._taken(ct, said)
        hedged, sure = self._sure(ct, said)
        self._true_facts(said)
        self.true -= _too_sure(self.facts, self.truth)
        true, placed = frozenset(self.true), frozenset(self.placed)
        return Comparison(
            self.right, self.wrong, self.missed, unsaid, taken, hedged, sure, true, placed
        )

    # Lesions.

    def _lesions(self, found: list[Group], true: list[Group]) -> None:
        pairs = _pairs(found, true)
        for group, other in pairs:
            good = group.parts == other.parts
            self._count(LOCATION, good, not good, not good)
            for fact in group.facts:
                if good:
                    self.placed.add(fact.id)
                value = _attribute(fact), fact.value
                if (fact.attribute == "finding" and kind_of(fact.value) in other.kinds) or (
                    value[0] in DESCRIBING and _has(other.values[value[0]], *value)
                ):
                    self.true.add(fact.id)
            if _NODE in other.kinds:  # whose sizes are no lesion's
                continue
            for attribute in DESCRIBING:
                self._values(attribute, group.values[attribute], other.values[attribute])
        paired = {id(each) for pair in pairs for each in pair}
        for group in found:
            if id(group) not in paired and _NODE not in group.kinds:
                self._count(LOCATION, 0, bool(group.kinds), 0)
                for attribute in DESCRIBING:
                    self._count(attribute, 0, len(group.values[attribute]), 0)
        for group in true:
            if id(group) not in paired:
                self._count(LOCATION, 0, 0, 1)
                for attribute in DESCRIBING:
                    self._count(attribute, 0, 0, len(group.values[attribute]))

    def _values(self, attribute: str, found: set[str], true: set[str]) -> None:
        right = sum(_has(found, attribute, value) for value in true)
        wrong = sum(not _has(true, attribute, value) for value in found)
        self._count(attribute, right, wrong, len(true) - right)

    def _count(self, measure: str, right: int, wrong: int, missed: int) -> None:
        self.right[measure] += right
        self.wrong[measure] += wrong
        self.missed[measure] += missed

    # What is said of an organ or a patient as a whole.

    def _numbers(self, ct: Sequence[Fact], said: Sequence[Statement]) -> None:
        counted: Counter[str] = Counter()
        for organ, lesion in {(s.organ, s.lesion) for s in said if s.attribute == "finding"}:
            solid = any(
                (s.organ, s.lesion) == (organ, lesion) and kind_of(s.value) == _SOLID for s in said
            )
            counted[organ] += bool(lesion) and solid
        told = {(s.organ, s.value) for s in said if s.attribute == "count"}
        asked = {(s.organ, s.value) for s in said if (s.attribute, s.lesion) == ("count", 0)}
        # That there is one, where one is told of, needs no saying.
        implied = {(organ, str(number)) for organ, number in counted.items()}
        lungs = {organ for organ, _ in told if "lung" in organ}
        told |= {(side, number) for organ, number in told if organ in lungs
                 for side in ("left lung", "right lung") if organ.endswith(side)}  # fmt: skip
        found = {(f.organ, f.value) for f in ct if f.attribute == "count" and f.is_current}
        found = {(organ, value) for organ, value in found if value.isdigit()}
        right = len(found & asked)
        self._count("count", right, len(found - told - implied), len(asked) - right)
        lesions = {(s.organ, s.lesion) for s in said if s.attribute == "finding" and s.is_current}
        many = Counter(organ for organ, _ in lesions)
        several = {organ for organ, number in told if number != "1"}
        several |= {organ for organ, number in many.items() if number > 1}
        told |= {(organ, SEVERAL) for organ in several}
        self.true |= {f.id for f in ct if f.attribute == "count"
                      and (f.organ, f.value) in told | implied}  # fmt: skip

    def _others(self) -> None:
        for attribute in ("nodes", "impression", "histology", *TNM, "age", "sex"):
            found = self._keys(self.facts, attribute)
            true = self._keys(self.truth, attribute)
            free = self._implied(attribute, true)
            right = found & true
            self._count(attribute, len(right), len(found - true - free), len(true - right))
            for fact in self.facts:
                if fact.attribute == attribute and self._key(fact) in true | free:
                    self.true.add(fact.id)

    def _keys(self, said: Iterable[Said], attribute: str) -> set[tuple[str, ...]]:
        said = [s for s in said if s.attribute == attribute and s.value not in _UNKNOWN]
        return {self._key(s) for s in said if s.is_current}

    @staticmethod
    def _key(said: Said) -> tuple[str, ...]:
        if said.attribute in ("age", "sex"):
            return (said.value,)
        organ = "" if said.attribute in ("nodes", *TNM, "histology") else said.organ
        if said.value == "no tumour":
            organ = ""
        return _source(said), organ, said.value

    def _implied(self, attribute: str, true: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Return what follows from the truth without being asked for."""
        if attribute == "nodes":
            denied = any(s.value == _NODE and s.polarity == "absent" for s in self.truth)
            return {("radiology", "", "0")} if denied else set()
        if attribute == "histology":
            return {(source, organ, "tumour") for source, organ, _ in true}
        if attribute != "impression":
            return set()
        free: set[tuple[str, ...]] = {
            (source, organ, "tumour") for source, organ, value in true if value != "no tumour"
        }
        # The conclusion calls a lesion a tumour that the findings call one, or names a metastasis.
        free |= {("radiology", s.organ, "tumour") for s in self.truth if s.value == "tumour"}
        for each in self.truth:
            if each.attribute == "finding" and each.is_current:
                free.add(("radiology", each.organ, _DISEASES.get(each.value, "tumour")))
        return free

    def _true_of_tissue(self, fact: Fact) -> None:
        """Judge what pathology tells besides histology, nodes and stage."""
        said = [s for s in self.truth if s.source == "pathology"]
        involved = any(s.attribute == "nodes" and s.value != "0" for s in said)
        spread = any(s.value == "metastasis" and s.is_current for s in self.truth)
        sizes = {s.value for s in said if s.attribute == "size"}
        if fact.attribute == "size":
            good = _has(sizes, "size", fact.value)
        elif fact.attribute == "finding" and fact.value in ("metastasis", _NODE):
            good = fact.polarity == "absent" or involved or spread
        else:
            good = fact.attribute not in (*MEASURES, "finding") or kind_of(fact.value) == _SOLID
        if good:
            self.true.add(fact.id)

    # Negations, earlier findings, hedges.

    def _taken(self, ct: Sequence[Fact], said: Sequence[Statement]) -> tuple[int, int]:
        there = {(s.organ, _attribute(s), kind_of(s.value)) for s in said if s.is_current}
        found = {(f.organ, _attribute(f), kind_of(f.value)) for f in ct if f.is_current}
        unsaid = {
            (s.organ, _attribute(s), kind_of(s.value))
            for s in said
            if not s.is_current and s.attribute in ("finding", "others", "size")
        } - there
        return len(unsaid), len(unsaid & found)

    def _sure(self, ct: Sequence[Fact], said: Sequence[Statement]) -> tuple[int, int]:
        def key(each: Said) -> tuple[str, str, str]:
            return each.organ, each.attribute, kind_of(each.value)

        here = [s for s in said if s.attribute in ("finding", "impression") and s.is_current]
        definite = {key(s) for s in here if s.certainty == "definite"}
        hedged = {key(s) for s in here if s.certainty != "definite"} - definite
        found = {key(f) for f in ct if f.is_current}
        sure = {key(f) for f in ct if f.is_current and f.certainty == "definite"}
        return len(hedged & found), len(hedged & sure)

    def _true_facts(self, said: Sequence[Statement]) -> None:
        """Add facts about what is not there, and about what the truth does not tell."""
        there = {(s.organ, kind_of(s.value)) for s in said if s.is_current}
        before = {(s.organ, kind_of(s.value)) for s in said if s.time == "prior"}
        known = {*FINDINGS, *OTHERS}
        for fact in self.facts:
            what = place_of(fact)[0], kind_of(fact.value)
            if fact.source.kind == "pathology":
                self._true_of_tissue(fact)
                continue
            if fact.attribute not in MEASURES and fact.attribute != "finding":
                self.true.add(fact.id)
            elif fact.attribute in ("finding", "others"):
                if (
                    fact.value not in known
                    or (fact.time == "prior" and what in before | there)
                    or (fact.polarity == "absent" and what not in there)
                ):
                    self.true.add(fact.id)
            elif fact.attribute == "size" and fact.time == "prior" and (what in before):
                self.true.add(fact.id)


def _too_sure(facts: Sequence[Fact], truth: Sequence[Statement]) -> set[str]:
    """Return the ids of definite facts about what the report only supposes."""

    def key(said: Said) -> tuple[str, str, str]:
        return said.organ, said.attribute, kind_of(said.value)

    here = [s for s in truth if s.attribute in ("finding", "impression") and s.is_current]
    sure = {key(s) for s in here if s.certainty == "definite"}
    supposed = {key(s) for s in here if s.certainty != "definite"} - sure
    return {f.id for f in facts if f.certainty == "definite" and key(f) in supposed}


def _has(values: set[str], attribute: str, value: str) -> bool:
    if attribute != "size":
        return value in values
    return any(abs(float(value) - float(other)) <= SIZE_TOLERANCE_MM for other in values)


def _pairs(found: list[Group], true: list[Group]) -> list[tuple[Group, Group]]:
    """Pair lesions of one organ and kind so that as much as possible agrees."""
    pairs = []
    organs = {group.organ for group in true if _NODE not in group.kinds}
    pools = [
        ([f for f in found if f.organ == organ and _NODE not in f.kinds],
         [t for t in true if t.organ == organ and _NODE not in t.kinds])
        for organ in sorted(organs)
    ]  # fmt: skip
    # An enlarged node's organ is a matter of words: "perigastric", "regional".
    pools.append(([f for f in found if _NODE in f.kinds], [t for t in true if _NODE in t.kinds]))
    for mine, theirs in pools:
        if not mine or not theirs:
            continue
        score = np.array([[_agreement(one, other) for other in theirs] for one in mine])
        rows, columns = linear_sum_assignment(score, maximize=True)
        pairs += [
            (mine[row], theirs[column])
            for row, column in zip(rows, columns, strict=True)
            if score[row, column] > 0
        ]
    return pairs


def _agreement(one: Group, other: Group) -> int:
    if not one.kinds & other.kinds:
        return 0
    same = sum(len(one.values[attribute] & other.values[attribute]) for attribute in DESCRIBING)
    return 10 + 3 * (one.parts == other.parts) + same
