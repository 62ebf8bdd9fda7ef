"""The Extractor by a language model: what it reads counts where the rules read the same.

A model's statement is taken over if the rules find it in the characters that it quotes. An organ of
which the model leaves out a finding that the rules read is set aside as a whole: half of a report
can say the opposite of all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import ATTRIBUTES, Fact
from tumorchain_jax.engine.language.model import Model
from tumorchain_jax.engine.text.extract import extract
from tumorchain_jax.llm.answer import Answer, one_of

DECISIVE = ("finding", "impression", "count", "nodes")
"""Attributes of which nothing may be missing."""
MOST = 60


class Statement(Answer):
    """What a model says that a report says; see `prompts/extractor.md`."""

    quote: Annotated[str, Field(min_length=1, max_length=200)]
    organ: str
    attribute: str
    value: Annotated[str, Field(max_length=60)]
    unit: Literal["", "mm", "years"]
    polarity: Literal["present", "absent"]
    certainty: Literal["definite", "probable", "possible"]
    time: Literal["current", "prior", "hypothetical"]


class Statements(Answer):
    """All of a report."""

    statements: list[Statement]


@cache
def statements_form() -> type[Statements]:
    """The form of a reply: organs and attributes are those that facts may have."""
    organs = one_of("", *(display_name(label) for label in range(1, len(ORGANS))))
    fields: dict[str, Any] = {"organ": (organs, ...), "attribute": (one_of(*ATTRIBUTES), ...)}
    statement: Any = create_model("Statement", __base__=Statement, **fields)
    few = Field(max_length=MOST)
    made: dict[str, Any] = {"statements": (Annotated[list[statement], few], ...)}
    return create_model("Statements", __base__=Statements, **made)


@dataclass(frozen=True)
class LanguageExtractor:
    """An Extractor whose reading the rules confirm."""

    model: Model

    def __call__(self, case: Case) -> tuple[Fact, ...]:
        """Return the facts that model and rules both read."""
        read = extract(case)
        confirmed: set[str] = set()
        for document in case.documents:
            own = [fact for fact in read if fact.source.document == document.sha256]
            data = {"kind": document.kind, "text": document.text}
            answer = self.model.ask(statements_form(), data)
            if answer is not None:
                confirmed |= self._confirmed(document, own, answer.statements)
        disputed = {
            (fact.source.kind, fact.organ)
            for fact in read
            if fact.attribute in DECISIVE and fact.id not in confirmed
        }
        self.model.set_aside("organs of which a finding was left out", len(disputed))
        return tuple(
            fact
            for fact in read
            if fact.id in confirmed and (fact.source.kind, fact.organ) not in disputed
        )

    def _confirmed(
        self, document: Document, read: list[Fact], said: Iterable[Statement]
    ) -> set[str]:
        found: set[str] = set()
        for statement in said:
            spans = _spans(document.text, statement.quote)
            if not spans:
                self.model.set_aside("quotes that are not in the report")
                continue
            same = {fact.id for fact in read if _agrees(fact, statement, spans)}
            if not same:
                self.model.set_aside("statements that the rules do not read there")
            found |= same
        return found


def _spans(text: str, quote: str) -> list[tuple[int, int]]:
    """All places of a quote."""
    spans, start = [], text.find(quote)
    while start >= 0:
        spans.append((start, start + len(quote)))
        start = text.find(quote, start + 1)
    return spans


def _agrees(fact: Fact, said: Statement, spans: list[tuple[int, int]]) -> bool:
    """Whether a fact says the same of the same, in characters that the quote shares."""
    same = (
        (fact.organ, fact.attribute, fact.value, fact.unit)
        == (said.organ, said.attribute, said.value, said.unit)
    ) and (fact.polarity, fact.certainty, fact.time) == (
        said.polarity,
        said.certainty,
        said.time,
    )
    source = fact.source
    return same and any(start < source.end and source.start < end for start, end in spans)
