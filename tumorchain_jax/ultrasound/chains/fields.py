"""The fields of a five-level record: their values, and the words of each in a sentence.

`wording.json` is versioned. Fields of the lexicon have its values; what other annotations say more
finely is a value of its own with the lexicon's as the broader one, and what the lexicon does not
know at all (halo, edge, boundary, axis ratio, skin, lactation) is a field of its own.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Literal, get_args

from tumorchain_jax.ultrasound.lexicon import load_lexicon

Level = Literal["observation", "feature", "diagnosis", "pathology"]
LEVELS: tuple[Level, ...] = get_args(Level)
NAME = r"[^\s.;<>&|][^.;<>&|\n]*"
"""A name of histopathology: what could end its sentence or its list is left out."""


@dataclass(frozen=True)
class ChainField:
    """A field.

    Attributes:
        sentence: with {} for the words of the value.
        words: of each value; empty for free names.
        many: several values may stand side by side.
        of: findings that the field belongs to; empty: of every picture.
        broader: value of the lexicon for values that it does not have.
    """

    name: str
    level: Level
    sentence: str
    words: Mapping[str, str]
    many: bool = False
    of: tuple[str, ...] = ()
    broader: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_words(self) -> Mapping[str, str]:
        """Values by their words."""
        return {words: value for value, words in self.words.items()}

    @cached_property
    def beginning(self) -> str:
        """What stands before the words."""
        return self.sentence.partition("{}")[0]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The whole sentence; its group is the words of one or more values."""
        if self.words:
            one = "|".join(map(re.escape, sorted(self.words.values(), key=len, reverse=True)))
            words = rf"(?:{one})(?:(?:, | and )(?:{one}))*" if self.many else one
        else:
            words = rf"{NAME}(?:; {NAME})*"
        before, after = map(re.escape, self.sentence.split("{}"))
        return re.compile(f"{before}({words}){after}")


@dataclass(frozen=True)
class Wording:
    """A version of all fields and their sentences."""

    version: str
    lexicon: str
    opening: str
    fields: Mapping[str, ChainField]


@lru_cache(maxsize=1)
def load_wording() -> Wording:
    """The shipped wording.

    Raises:
        ValueError: it is of another version of the lexicon, or lacks one of its values.
    """
    values = json.loads(
        files("tumorchain_jax.ultrasound").joinpath("chains/wording.json").read_text("utf-8")
    )
    fields = {
        name: ChainField(
            name,
            each["level"],
            each["sentence"],
            each.get("words", {}),
            each.get("many", False),
            tuple(each.get("of", ())),
            each.get("broader", {}),
        )
        for name, each in values["fields"].items()
    }
    lexicon = load_lexicon()
    lacking = [
        f"{known.name}: {value}"
        for known in lexicon.fields
        for value in known.values
        if value not in fields[known.name].words
    ]
    if values["lexicon"] != lexicon.version or lacking:
        raise ValueError(f"wording for lexicon {values['lexicon']}, which lacks {lacking}")
    return Wording(values["version"], values["lexicon"], values["opening"], fields)
