"""Facts of a case that contradict each other: found and told, never resolved.

Compared are current facts of certain statements; what CT and pathology say differently is no
contradiction of a report (the paper's discordance) and is left to the summarizer.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.text.lesions import are_compatible
from tumorchain_jax.engine.text.notes import tumours

TOLERANCE_MM = 2.0
"""Sizes of a lesion that differ by less are rounded ones."""
_NEXT = 80
"""Characters between a number and what it counts, at most."""
_NORMAL = re.compile(r"normal|unremarkable|within|wnl|nad|inconspicuous|clear|regular|healthy|"
                     r"unauffällig|regelrecht|o\. ?b\.|\bok\b|fine", re.IGNORECASE)  # fmt: skip
_ONE_VALUE = ("shape", "boundary", "density")
_TUMOUR = ("mass", "tumour")
# What a lesion cannot be at once.
_SOLID_BENIGN = frozenset({"haemangioma", "granuloma", "fatty area", "accessory spleen"})
# What a conclusion never calls a tumour.
_NO_TUMOUR = _SOLID_BENIGN | {"cyst", "diverticulum", "gallstone", "kidney stone", "infarct"}
_UNLIKE = {
    "metastasis": _NO_TUMOUR,
    "tumour": _SOLID_BENIGN,
}


@dataclass(frozen=True)
class Conflict:
    """Two facts of which one must be wrong.

    Attributes:
        reason: `polarity`, `organ`, `side`, `part`, `kind`, `size`, `count`, `patient`, or the
            attribute that has two values.
        first, second: in the order of the text.
    """

    reason: str
    first: Fact
    second: Fact


def conflicts(facts: Iterable[Fact]) -> tuple[Conflict, ...]:
    """Return the contradictions among the facts of a case, in the order of their first facts."""
    said = [f for f in facts if f.time == "current" and f.certainty != "possible"]
    by_kind: dict[str, list[Fact]] = defaultdict(list)
    for fact in said:
        by_kind[fact.source.kind].append(fact)
    found: list[Conflict] = []
    for group in by_kind.values():
        for compare in _COMPARISONS:
            found += compare(group)
    found += _patients(said)
    unique = {(c.reason, c.first.id, c.second.id): c for c in found}
    return tuple(sorted(unique.values(), key=lambda c: (c.first.source.start, c.reason)))


def _pairs(facts: Iterable[Fact]) -> Iterator[tuple[Fact, Fact]]:
    ordered = sorted(facts, key=lambda fact: (fact.source.document, fact.source.start))
    return combinations(ordered, 2)


def _lesion_facts(facts: Iterable[Fact]) -> list[Fact]:
    return [f for f in facts if f.attribute == "finding" or _is_tumour(f)]


def _is_tumour(fact: Fact) -> bool:
    return fact.attribute == "impression" and fact.value not in ("no tumour",)


def _polarity(facts: list[Fact]) -> Iterator[Conflict]:
    """Present here, absent there: one name in one place, or a tumour in a normal organ."""
    present = [f for f in _lesion_facts(facts) if f.polarity == "present"]
    absent = [f for f in facts if f.attribute == "finding" and f.polarity == "absent"]
    denied = [f for f in facts if (f.attribute, f.value) == ("impression", "no tumour")]
    index: dict[str, list[Fact]] = defaultdict(list)
    for fact in absent:
        index[fact.organ].append(fact)
    for fact in present:
        for other in (*index[fact.organ], *(index[""] if fact.organ else ())):
            if _denies(other, fact):
                yield _ordered("polarity", fact, other)
        for other in denied:
            is_one = fact.value in (*_TUMOUR, "metastasis") or fact.value in tumours()
            if is_one and other.organ in ("", fact.organ):
                yield _ordered("polarity", fact, other)


def _denies(absent: Fact, present: Fact) -> bool:
    same = absent.value == present.value
    if absent.value in _TUMOUR:
        same |= present.value in _TUMOUR or _is_tumour(present)
    if not absent.organ and absent.value not in ("lymph node", "metastasis", "tumour"):
        return False
    if not absent.organ and present.organ and absent.value == "tumour":
        return same
    # "The left kidney is normal" denies more than a mass.
    normal = absent.value == "mass" and present.lesion and _NORMAL.search(absent.source.quote)
    same |= bool(normal) and absent.organ == present.organ and _far(absent, present)
    return same and are_compatible(absent.part, present.part) and (
        not absent.part or absent.part == present.part
    )  # fmt: skip


def _organs(facts: list[Fact]) -> Iterator[Conflict]:
    """The impression has a tumour in an organ of which the findings tell none, but in another."""
    told = [f for f in facts if f.attribute == "finding" and f.polarity == "present"]
    primary = [f for f in told if f.value in _TUMOUR and f.organ]
    concluded = [
        f for f in facts
        if f.attribute == "impression" and f.polarity == "present" and f.organ
        and (f.value == "tumour" or f.value in tumours())
    ]  # fmt: skip
    if primary and not any(_is_of(fact, other) for fact in concluded for other in told):
        for fact in concluded:
            yield _ordered("organ", primary[0], fact)


def _is_of(concluded: Fact, told: Fact) -> bool:
    """Whether a conclusion may be about a finding: a metastasis is of another tumour's name."""
    if told.organ != concluded.organ or not (told.lesion or told.value in _TUMOUR):
        return False
    if told.value == "metastasis":
        return concluded.value == "tumour" and are_compatible(told.part, concluded.part)
    return told.value not in _NO_TUMOUR or "cyst" in concluded.value or "mucin" in concluded.value


def _sides(facts: list[Fact]) -> Iterator[Conflict]:
    """One finding on the left here and on the right there, told of one side only each time."""
    by_value: dict[tuple[str, str], dict[str, list[Fact]]] = defaultdict(lambda: defaultdict(list))
    for fact in facts:
        if fact.attribute in ("finding", "impression") and fact.polarity == "present":
            side, _, organ = fact.organ.partition(" ")
            if side in ("left", "right"):
                by_value[fact.value, organ][side].append(fact)
    sizes: dict[str, list[float]] = defaultdict(list)
    for fact in facts:
        if fact.attribute == "size" and fact.polarity == "present":
            sizes[fact.organ].append(float(fact.value))
    for (_, organ), sides in by_value.items():
        both = sizes[f"left {organ}"], sizes[f"right {organ}"]
        if all(both) and not any(abs(a - b) <= TOLERANCE_MM for a in both[0] for b in both[1]):
            continue  # two lesions, each with its own size
        left, right = sides["left"], sides["right"]
        if left and right:
            first, second = sorted((left[0], right[0]), key=lambda f: f.source.start)
            again = len(right if second is right[0] else left) == 1
            if again and first.lesion == second.lesion and _far(first, second):
                yield Conflict("side", first, second)


def _far(first: Fact, second: Fact) -> bool:
    return abs(second.source.start - first.source.end) > 60


def _parts(facts: list[Fact]) -> Iterator[Conflict]:
    for group in _by_lesion(facts).values():
        located = [f for f in group if f.part and f.attribute in ("finding", "impression")]
        for first, second in _pairs(located):
            if not are_compatible(first.part, second.part):
                yield Conflict("part", first, second)
                break


def _kinds(facts: list[Fact]) -> Iterator[Conflict]:
    """One lesion is called a metastasis here and a haemangioma there."""
    for group in _by_lesion(facts).values():
        named = [f for f in group if f.attribute == "finding" and f.certainty == "definite"]
        for first, second in _pairs(named):
            values = first.value, second.value
            if any(b in _UNLIKE.get(a, ()) for a, b in (values, values[::-1])):
                yield Conflict("kind", first, second)
                break


def _values(facts: list[Fact]) -> Iterator[Conflict]:
    for group in _by_lesion(facts).values():
        for attribute in _ONE_VALUE:
            told = [f for f in group if f.attribute == attribute]
            for first, second in _pairs(told):
                differ = (first.value == second.value) != (first.polarity == second.polarity)
                if (differ and "absent" not in (first.polarity, second.polarity)) or (
                    first.value == second.value and first.polarity != second.polarity
                ):
                    yield Conflict(attribute, first, second)


def _sizes(facts: list[Fact]) -> Iterator[Conflict]:
    for group in _by_lesion(facts).values():
        told = [f for f in group if f.attribute == "size" and f.polarity == "present"]
        for first, second in _pairs(told):
            if abs(float(first.value) - float(second.value)) > TOLERANCE_MM:
                yield Conflict("size", first, second)


def _counts(facts: list[Fact]) -> Iterator[Conflict]:
    for attribute in ("count", "nodes"):
        told = [f for f in facts if f.attribute == attribute and f.polarity == "present"]
        told = [f for f in told if f.value.isdigit()]
        by_organ: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        for fact in told:
            by_organ[fact.organ, _counted(fact, facts)].append(fact)
        for group in by_organ.values():
            for first, second in _pairs(group):
                if first.value != second.value and _far(first, second):
                    yield Conflict(attribute, first, second)


def _counted(count: Fact, facts: Iterable[Fact]) -> str:
    """Return what a number counts: the finding that the text names next."""
    following = [
        f for f in facts if f.attribute == "finding" and f.source.document == count.source.document
        and 0 <= f.source.start - count.source.end <= _NEXT
    ]  # fmt: skip
    name = min(following, key=lambda f: f.source.start).value if following else "mass"
    return "mass" if name in (*_TUMOUR, "metastasis") else name


def _stages(facts: list[Fact]) -> Iterator[Conflict]:
    for attribute in "TNM":
        told = [f for f in facts if f.attribute == attribute and not f.value.endswith("X")]
        for first, second in _pairs(told):
            if not (first.value.startswith(second.value) or second.value.startswith(first.value)):
                yield Conflict(attribute, first, second)


def _patients(facts: list[Fact]) -> Iterator[Conflict]:
    """Two ages or sexes: texts of two patients."""
    for attribute in ("age", "sex"):
        told = [f for f in facts if f.attribute == attribute]
        for first, second in _pairs(told):
            if first.value != second.value:
                yield Conflict("patient", first, second)
                break


def _by_lesion(facts: Iterable[Fact]) -> dict[tuple[str, int], list[Fact]]:
    groups: dict[tuple[str, int], list[Fact]] = defaultdict(list)
    for fact in facts:
        if (fact.lesion and fact.polarity == "present") or (
            fact.lesion and fact.attribute in _ONE_VALUE
        ):
            groups[fact.organ, fact.lesion].append(fact)
    return groups


def _ordered(reason: str, first: Fact, second: Fact) -> Conflict:
    if second.source.start < first.source.start:
        first, second = second, first
    return Conflict(reason, first, second)


_COMPARISONS = (
    _polarity, _organs, _sides, _parts, _kinds, _values, _sizes, _counts, _stages,
)  # fmt: skip
