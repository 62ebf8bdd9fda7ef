"""Drafts: a report as sentences, each with what it states; and the text that they make.

Twins of a report exchange sentences of its draft, so that text and truth change together.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from tumorchain_jax.phantoms.reports import noise
from tumorchain_jax.phantoms.reports.patients import ReportPatient
from tumorchain_jax.phantoms.reports.phrases import SLOT, choose, phrase_book, slots_of, word_book
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import Style

Block = tuple[tuple["Sentence", ...], ...]
"""Groups of sentences, of an organ each."""
_GAPS = re.compile(r" +( |[.,](?!\w))")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeioAEIO]|8|11\b|18\b|HCC)")


@dataclass(frozen=True)
class Sentence:
    """A sentence and what it states.

    Attributes:
        text: as written, before slips.
        statements: that it makes.
        role: section of the phrase book that it is from.
        organ: display name of the organ that it is about, or empty.
        lesion: number of the lesion that it is about, or 0.
    """

    text: str
    statements: tuple[Statement, ...]
    role: str
    organ: str = ""
    lesion: int = 0


@dataclass(frozen=True)
class Slot:
    """What may stand in a slot, and what is stated by it."""

    options: Sequence[str]
    statements: tuple[Statement, ...] = ()


Slots = Mapping[str, Slot | Callable[[], Slot]]


@dataclass(frozen=True)
class Draft:
    """A report before it is text.

    Attributes:
        page: template of the page, with a slot for each block.
        blocks: name of the slot -> its sentences.
        plain: slots that are no sentences, such as the region.
    """

    style: Style
    patient: ReportPatient
    seed: int
    page: str
    blocks: Mapping[str, Block]
    plain: Mapping[str, str]

    def sentences(self) -> Iterable[Sentence]:
        """All sentences that the page shows, in the order of the blocks."""
        shown = slots_of(self.page)
        for name, block in self.blocks.items():
            if name in shown:
                for group in block:
                    yield from group

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What the report says, each once, in the order of the text."""
        return tuple(dict.fromkeys(s for each in self.sentences() for s in each.statements))

    @property
    def text(self) -> str:
        """The report as its reader gets it."""
        filled = {name: _layout(self.style, name, block) for name, block in self.blocks.items()}
        filled |= self.plain
        text = SLOT.sub(lambda found: filled[found[1]], self.page)
        return noise.apply(self.style, text, Random(f"slips {self.style.name} {self.seed}"))

    def with_block(self, name: str, block: Block) -> "Draft":
        """Return it with another block."""
        return replace(self, blocks={**self.blocks, name: block})


def _layout(style: Style, name: str, block: Block) -> str:
    within = "\n" if style.layout == "lines" and name != "technique" else " "
    between = "\n" if style.layout in ("organs", "lines") and name == "findings" else within
    lines = [within.join(each.text for each in group) for group in block if group]
    if name == "impression" and style.layout == "organs" and len(lines) > 1:
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return between.join(lines)


class Pen:
    """Fills templates of a style's phrase book with words."""

    def __init__(self, style: Style, rng: Random, book: str = ""):
        self.rng = rng
        self.phrases = phrase_book(book or style.name)
        self.words = word_book(style.language)

    def word(self, *keys: str) -> Sequence[str]:
        """Return the wordings of the first key that the word book has.

        Raises:
            KeyError: it has none of them.
        """
        for key in keys:
            if found := self.words.get(key):
                return found
        raise KeyError(keys[-1])

    def say(
        self, role: str, slots: Slots, *statements: Statement, organ: str = "", lesion: int = 0
    ) -> Sentence:
        """Write a sentence: one of the section's templates, filled."""
        template = choose(self.rng, self.rng.choice(self.phrases[role]))
        return self.fill(template, role, slots, statements, organ, lesion)

    def fill(
        self,
        template: str,
        role: str,
        slots: Slots,
        statements: Iterable[Statement],
        organ: str = "",
        lesion: int = 0,
    ) -> Sentence:
        """Fill a template that has no choices left."""
        said = [*statements]

        def word(found: re.Match[str]) -> str:
            slot = slots[found[1].lower()]
            slot = slot() if callable(slot) else slot
            said.extend(slot.statements)
            text = self.rng.choice(slot.options)
            return text[:1].upper() + text[1:] if found[1][0].isupper() else text

        text = _ARTICLE.sub(r"\1n ", _GAPS.sub(r"\1", SLOT.sub(word, template)))
        text = text.replace("..", ".")  # an abbreviation at the end
        return Sentence(text, tuple(dict.fromkeys(said)), role, organ, lesion)
