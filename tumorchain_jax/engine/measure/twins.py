"""Adversarial twins read: what must go has gone, what must come is there, conflicts are told."""

from dataclasses import dataclass

from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.measure.cases import text_case
from tumorchain_jax.engine.measure.matching import kind_of, place_of
from tumorchain_jax.engine.text.conflicts import conflicts
from tumorchain_jax.engine.text.extract import Extraction, read_reports
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import Style
from tumorchain_jax.phantoms.reports.twins import LARGEST_MM, Twin, make_twins


@dataclass(frozen=True)
class TwinResult:
    """What became of a twin.

    Attributes:
        kind: of the change.
        changed: whether the reader did what the twin asks for.
        false_flag: whether it saw a contradiction in the clean text already; None where it was not
            asked.
    """

    kind: str
    changed: bool
    false_flag: bool | None = None


def read_twins(seed: int, style: Style, kinds: tuple[str, ...] = ()) -> list[TwinResult]:
    """Read the twins of a seed."""
    return [_result(twin, style) for twin in make_twins(seed, style, kinds)]


def _result(twin: Twin, style: Style) -> TwinResult:
    read = read_reports(text_case(twin.text, style.language))
    facts = read.facts
    good = not any(_is_there(each, facts) for each in twin.vanish)
    good &= all(_is_told(each, facts) for each in twin.appear)
    if twin.sized:
        good &= not any(f.attribute == "size" and float(f.value) > LARGEST_MM for f in facts)
    false_flag = None
    if twin.same or twin.flag:
        clean = read_reports(text_case(twin.clean, style.language))
        if twin.same:
            good &= _content(clean) == _content(read)
        if twin.flag:
            false_flag = bool(conflicts(clean.facts))
            # What the clean text is flagged for already is no answer to the change.
            good &= len(conflicts(facts)) > len(conflicts(clean.facts))
    return TwinResult(twin.kind, bool(good), false_flag)


def _content(read: Extraction) -> list[tuple[str, ...]]:
    """Return facts without where they stand, for a change moves what follows it."""
    return sorted(
        (f.organ, f.part, str(f.lesion), f.attribute, f.value, f.polarity, f.certainty, f.time)
        for f in read.facts
    )


def _is_there(said: Statement, facts: tuple[Fact, ...]) -> bool:
    return any(_same(said, f) and f.is_current and f.certainty == said.certainty for f in facts)


def _is_told(said: Statement, facts: tuple[Fact, ...]) -> bool:
    sure = said.certainty == "definite"
    return any(
        _same(said, f) and f.is_current == said.is_current and (f.certainty == "definite") == sure
        for f in facts
    )


def _same(said: Statement, fact: Fact) -> bool:
    organ, _ = place_of(fact)
    nodes = said.value == "lymph node"
    return (said.attribute, kind_of(said.value)) == (fact.attribute, kind_of(fact.value)) and (
        nodes or organ == said.organ
    )
