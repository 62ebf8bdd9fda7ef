"""Whether the answer of a record follows from what its chain claims.

It is worked out again from the claims, the question and the subtask alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.agents.ask import NO, NONE, VALUES, YES
from tumorchain_jax.engine.agents.questions import without_request
from tumorchain_jax.engine.agents.statements import LESIONS, NO_TUMOUR, TUMOUR
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.graph.load import KnowledgeGraph
from tumorchain_jax.engine.text.counts import SEVERAL

# How a question begins that asks for a category; the others ask for yes or no.
_ASKS_CATEGORY = ("Which ", "Give ", "How ", "Name ")
_LETTERS = {"tumor": "T", "node": "N", "metastasis": "M"}


def answer_issue(record: Record, steps: Iterable[Step], graph: KnowledgeGraph) -> str:
    """Return why an answer does not follow; empty if it does."""
    said = _Said([claim for step in steps for claim in step.claims], graph)
    record = replace(record, question=without_request(record.question))
    check = _CHECKS.get(record.subtask, _Said.has_value)
    return "" if check(said, record) else f"the answer {record.answer!r} does not follow"


class _Said:
    """Claims by relation."""

    def __init__(self, claims: list[Claim], graph: KnowledgeGraph):
        self.claims, self.graph = claims, graph
        self.objects: dict[str, set[str]] = defaultdict(set)
        for claim in claims:
            self.objects[claim.relation].add(claim.object)
        found = [c for c in claims if c.relation == "finding"]
        self.denies = any(c.object.startswith("no ") for c in found)
        self.lesions = {c.subject for c in found if c.object in LESIONS}

    def has_position(self, record: Record) -> bool:
        places = self.objects["third"] | self.objects["box"]
        return record.answer.strip("()") in places

    def has_tumour(self, record: Record) -> bool:
        impressions = self.objects["impression"]
        if record.answer == NO:
            return self.denies or impressions == {NO_TUMOUR}
        if record.answer == NONE:
            return impressions == {NO_TUMOUR}
        if record.answer == YES:
            asked_part = TUMOUR not in record.question
            return self._inside(record) if asked_part else TUMOUR in impressions
        return {c.subject for c in self.claims if c.object == TUMOUR} >= {record.answer}

    def _inside(self, record: Record) -> bool:
        parts = self.objects["location"]
        wholes = {w for part in parts if part in self.graph.kinds for w in self.graph.wholes(part)}
        return bool(self.lesions) and any(part in record.question for part in parts | wholes)

    def has_part(self, record: Record) -> bool:
        parts = self.objects["location"]
        if record.answer in (YES, NO):
            words = f" {record.question.strip('?')} "
            return any(f" {part} " in words for part in parts) == (record.answer == YES)
        return parts == {record.answer}

    def has_value(self, record: Record) -> bool:
        objects = self.objects[record.subtask]
        there = {each for each in objects if not each.startswith("no ")}
        if record.answer not in (YES, NO):
            return there == {record.answer}
        asked = {value for value in VALUES[record.subtask] if value in record.question}
        if record.answer == YES:
            return bool(asked) and asked <= there
        return not asked & there and (bool(objects) or self.denies)

    def has_count(self, record: Record) -> bool:
        if record.answer == NONE:
            return self.denies and not self.lesions
        if SEVERAL in self.objects["count"]:
            return False
        counts = {c.subject: int(c.object) for c in self.claims if c.relation == "count"}
        return record.answer == str(sum(counts.get(lesion, 1) for lesion in self.lesions))

    def has_stage(self, record: Record) -> bool:
        letter = _LETTERS[record.subtask]
        stages = self.objects[letter] or self.objects[f"imaging {letter}"]
        if (record.answer in (YES, NO)) == record.question.startswith(_ASKS_CATEGORY):
            return False
        if record.answer not in (YES, NO):
            return stages == {record.answer}
        if not stages:
            return record.answer == NO and self.denies
        return all((stage[1] != "0") == (record.answer == YES) for stage in stages)

    def has_conclusion(self, record: Record) -> bool:
        impressions = self.objects["impression"]
        if record.answer.startswith(NO_TUMOUR):
            return impressions == {NO_TUMOUR}
        held = {
            c.subject
            for c in self.claims
            if c.relation == "impression"
            and c.object != NO_TUMOUR
            and f" {c.object} " in f" {record.answer} "
        }
        what, _, place = record.answer.partition(", in ")
        parts = {f"the {part}" for part in self.objects["location"]} | self.objects["location"]
        return any(organ in what for organ in held) and (not place or place in parts)


_CHECKS: dict[str, Callable[[_Said, Record], bool]] = {
    "organ_position": _Said.has_position,
    "tumor_position": _Said.has_tumour,
    "segment_localization": _Said.has_part,
    "count": _Said.has_count,
    **dict.fromkeys(_LETTERS, _Said.has_stage),
    "cot_report": _Said.has_conclusion,
}
