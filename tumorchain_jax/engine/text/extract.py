"""Facts of a case's reports, by rules.

A report is read sentence by sentence (`reader.py`); what a sentence says of a lesion is kept with
the lesion until the whole report is read, for its place, its number and what accompanies it may be
told later. Nothing is concluded that no characters of the report say.
"""

from dataclasses import dataclass

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.text.reader import Reader


@dataclass(frozen=True)
class Slip:
    """A place in a report that was not taken for a fact.

    Attributes:
        reason: `impossible size`, or `instruction` for text that addresses a program.
        document: sha256 of the report.
        start, end, quote: its characters.
    """

    reason: str
    document: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True)
class Extraction:
    """What was read in the reports of a case.

    Attributes:
        facts: in the order of the documents and of their text.
        slips: what was left out, with the reason.
    """

    facts: tuple[Fact, ...]
    slips: tuple[Slip, ...]


def extract(case: Case) -> tuple[Fact, ...]:
    """Return the facts of a case's reports, in the order of the documents and of their text.

    Raises:
        InputError: a text holds a lone surrogate, which no file can hold.
    """
    return read_reports(case).facts


def read_reports(case: Case) -> Extraction:
    """Return the facts of a case's reports and what was left out.

    Raises:
        InputError: as `extract`.
    """
    facts: list[Fact] = []
    slips: list[Slip] = []
    for number, document in enumerate(case.documents, 1):
        _check(case, number, document)
        reader = Reader(document, case.id)
        facts += reader.facts()
        slips += (
            Slip(reason, document.sha256, start, end, document.text[start:end])
            for reason, start, end in reader.notes.slips
        )
    return Extraction(tuple(facts), tuple(slips))


def _check(case: Case, number: int, document: Document) -> None:
    for position, character in enumerate(document.text):
        if "\ud800" <= character <= "\udfff":
            raise InputError(
                f"case {case.id}", f"document {number}, character {position}",
                f"a lone surrogate ({ord(character):#06x})", "text that UTF-8 can hold",
                "read the report with the encoding that it was written in",
            )  # fmt: skip
