"""The BI-RADS lexicon of ultrasound from versioned files, and one reading by it.

The 5th edition's words of descriptors and categories are facts; the file is ours. Categories are
those of a reading study: 1 to 5 with 4 in three parts, without 0 (incomplete) and 6 (known cancer).
Of version 2025 few facts are known here, each with its source; it is refused until it is whole.
`2025-provisional` is the 5th edition with the additions of 2025 that second-hand sources agree on.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from tumorchain_jax.core.errors import InputError

FILES = {
    "5": "lexicon/birads_us_5.json",
    "2025": "lexicon/birads_us_2025.json",
    "2025-provisional": "lexicon/birads_us_2025_provisional.json",
}
"""By edition."""
PROBABILITY = "probability"
"""Field of a reading beside those of the lexicon: of malignancy, in whole per cent."""
HINT = "hand in the file that the reading page wrote"


@dataclass(frozen=True)
class Field:
    """A field of a reading.

    Attributes:
        of: value of `finding` that the field belongs to; empty: of every reading.
        ordered: whether its values are steps of a scale.
    """

    name: str
    title: str
    values: tuple[str, ...]
    of: str = ""
    ordered: bool = False


@dataclass(frozen=True)
class Lexicon:
    """A version of the lexicon.

    Attributes:
        sha256: of its file.
    """

    name: str
    version: str
    fields: tuple[Field, ...]
    sha256: str

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Fields by their names."""
        return {field.name: field for field in self.fields}

    @property
    def categories(self) -> tuple[str, ...]:
        """BI-RADS categories in their order."""
        return self.by_name["category"].values

    def wanted(self, finding: str) -> tuple[Field, ...]:
        """Fields that a reading of a finding has."""
        return tuple(field for field in self.fields if field.of in ("", finding))

    def fault(self, reading: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """What is wrong with a complete reading: field, found, expected; None if nothing is."""
        known = {*self.by_name, PROBABILITY}
        if unknown := sorted(set(reading) - known):
            return str(unknown[0]), "an unknown field", f"one of {', '.join(sorted(known))}"
        finding = reading.get("finding")
        wanted = {field.name for field in self.wanted(str(finding))}
        for field in self.fields:
            value = reading.get(field.name)
            if field.name in wanted and value not in field.values:
                found = "nothing" if value is None else repr(value)[:60]
                return field.name, found, f"one of {', '.join(field.values)}"
            if field.name not in wanted and value is not None:
                return field.name, repr(value)[:60], f"nothing, as the finding is {finding}"
        chance = reading.get(PROBABILITY)
        if type(chance) is not int or not 0 <= chance <= 100:
            return PROBABILITY, repr(chance)[:60], "whole per cent, 0 to 100"
        if (finding == "none") != (reading["category"] == "1"):
            return (
                "category",
                f"{reading['category']!r} with finding {finding}",
                ("category 1 where there is no finding, and only there"),
            )
        return None

    def check(self, reading: Mapping[str, Any], source: object, where: str) -> None:
        """Refuse a reading that is not complete, or not of this lexicon.

        Raises:
            InputError: it is not; names `where` and the field.
        """
        if wrong := self.fault(reading):
            field, found, expected = wrong
            raise InputError(source, f"{where}.{field}", found, expected, HINT)


@lru_cache(maxsize=len(FILES))
def load_lexicon(edition: str = "5") -> Lexicon:
    """A shipped lexicon.

    Raises:
        InputError: there is none of the edition, or it is not whole.
    """
    if edition not in FILES:
        raise InputError("lexicon", "edition", edition, f"one of {', '.join(FILES)}", "choose one")
    content = files("tumorchain_jax.ultrasound").joinpath(FILES[edition]).read_bytes()
    values = json.loads(content)
    if not values.get("complete", True):
        found = f"known changes of {', '.join(each['field'] for each in values['changes'])} alone"
        hint = "use edition 5, or complete the file from the manual"
        raise InputError(FILES[edition], "fields", found, "every field", hint)
    fields = tuple(
        Field(name, each["title"], tuple(each["values"]), each.get("of", ""), "ordered" in each)
        for name, each in values["fields"].items()
    )
    sha256 = hashlib.sha256(content).hexdigest()
    return Lexicon(values["name"], values["version"], fields, sha256)


def lexicon_with(sha256: str, source: object) -> Lexicon:
    """The shipped lexicon of a hash, as studies and runs name theirs.

    Args:
        source: of the hash, for the error.

    Raises:
        InputError: there is none.
    """
    whole = [load_lexicon(edition) for edition in FILES if edition != "2025"]
    for lexicon in whole:
        if lexicon.sha256 == sha256:
            return lexicon
    expected = " or ".join(f"{each.sha256[:16]} ({each.version})" for each in whole)
    hint = "use the version of this program that made it"
    raise InputError(source, "lexicon", sha256[:16], expected, hint)
