"""What is known of a lesion at five levels: observation, feature, diagnosis, pathology, chain."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.chains.fields import LEVELS, NAME, load_wording
from tumorchain_jax.ultrasound.lexicon import load_lexicon


@dataclass(frozen=True)
class Levels:
    """The values of four levels; the fifth, the chain, is their text.

    Attributes:
        values: of each field that is known, in the order of the wording.
    """

    values: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, values: Mapping[str, Sequence[str]]) -> "Levels":
        """Order fields and values as the wording has them; fields without a value are left out."""
        ordered = {}
        for name, each in load_wording().fields.items():
            given = list(dict.fromkeys(values.get(name, ())))
            known = [value for value in each.words if value in given]
            if given:
                ordered[name] = (*known, *(value for value in given if value not in each.words))
        ordered |= {name: tuple(given) for name, given in values.items() if name not in ordered}
        return cls({name: given for name, given in ordered.items() if given})

    def one(self, name: str) -> str:
        """The first value of a field; empty if it is not known."""
        return self.values.get(name, ("",))[0]

    def faults(self) -> list[str]:
        """What contradicts itself, a line each; none: a state that can be."""
        return [*self._unknown(), *self._contradictions()]

    def _unknown(self) -> list[str]:
        fields, found = load_wording().fields, []
        for name, given in self.values.items():
            each = fields.get(name)
            if each is None:
                found.append(f"{name}: no such field")
                continue
            for value in given:
                good = value in each.words if each.words else _is_name(value)
                if not good:
                    found.append(f"{name}: {value!r} is none of its values"[:120])
            if len(given) > 1 and not each.many:
                found.append(f"{name}: {' and '.join(given)}"[:120])
        return found

    def _contradictions(self) -> list[str]:
        found, finding, label = [], self.one("finding"), self.one("label")
        margin = self.values.get("margin", ())
        if "circumscribed" in margin and len(margin) > 1:
            found.append(f"margin: {' and '.join(margin)}")
        for name, each in load_wording().fields.items():
            if each.of and finding and finding not in each.of and name in self.values:
                found.append(f"{name}: {self.one(name)} with finding {finding}")
        if (
            finding
            and self.one("category")
            and ((finding == "none") != (self.one("category") == "1"))
        ):
            found.append(f"category: {self.one('category')} with finding {finding}")
        if finding and label and (finding == "none") != (label == "normal"):
            found.append(f"label: {label} with finding {finding}")
        if label == "normal" and "histopathology" in self.values:
            found.append(f"histopathology: {self.one('histopathology')} of normal tissue"[:120])
        presence, kind = self.one("calcification"), self.one("calcifications")
        if presence and kind and (presence == "absent") != (kind == "none"):
            found.append(f"calcifications: {kind}, and calcification {presence}")
        return found

    def check(self, source: object) -> None:
        """Refuse a state that contradicts itself.

        Raises:
            InputError: it does.
        """
        if faults := self.faults():
            hint = "correct the annotation; ultrasound/README.md has the rules"
            raise InputError(source, "levels", faults[0], "values that can be together", hint)

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Four objects, one for each level."""
        fields = load_wording().fields
        found: dict[str, dict[str, Any]] = {level: {} for level in LEVELS}
        for name, given in self.values.items():
            each = fields[name]
            found[each.level][name] = list(given) if each.many else given[0]
        return found

    def reading(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The lexicon's fields with one value each, and the fields that lost something by that."""
        fields, lexicon = load_wording().fields, load_lexicon().by_name
        reading, lossy = {}, [name for name in self.values if name not in lexicon]
        for name in lexicon:
            given = self.values.get(name, ())
            broader = [fields[name].broader.get(value, value) for value in given]
            kept = [value for value in broader if value in lexicon[name].values]
            if kept:
                reading[name] = kept[0]
            if kept[:1] != list(given):
                lossy.append(name)
        return reading, tuple(sorted(set(lossy) - {"label", "histopathology"}))


def levels_from_json(record: Mapping[str, Any], source: object) -> Levels:
    """The levels of a line of `records.jsonl`.

    Raises:
        InputError: a level is no object, or the values contradict each other.
    """
    values: dict[str, Sequence[str]] = {}
    for level in LEVELS:
        given = record.get(level)
        if not isinstance(given, Mapping):
            hint = "write the records again with `tumorchain bus chains`"
            raise InputError(source, level, repr(given)[:60], "an object", hint)
        for name, value in given.items():
            values[name] = value if isinstance(value, list) else [value]
    levels = Levels.of({name: [str(each) for each in given] for name, given in values.items()})
    levels.check(source)
    return levels


def _is_name(value: str) -> bool:
    return len(value) <= 200 and re.fullmatch(NAME, value) is not None and value == value.strip()
