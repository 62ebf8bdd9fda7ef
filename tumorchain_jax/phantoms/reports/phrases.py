"""Phrase books: files with the sentences of a style, and files with words.

A phrase book has sections, `[lesion]` on a line, and below one template on each line. In a template
`<a|b>` is one of a few wordings (they nest), `{slot}` a word of the truth, `{Slot}` the same with a
capital, and `\\n` a new line. A word book has lines `key = wording | wording`.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import prod
from random import Random

_SECTION = re.compile(r"\[([a-z][a-z. -]*)\]")
_CHOICE = re.compile(r"<([^<>]*)>")
SLOT = re.compile(r"\{([A-Za-z][A-Za-z_]*)\}")


@cache
def phrase_book(style: str) -> Mapping[str, tuple[str, ...]]:
    """Return section -> templates of a style."""
    book: dict[str, list[str]] = {}
    templates: list[str] = []
    for line in _lines("styles", style):
        if section := _SECTION.fullmatch(line):
            templates = book.setdefault(section[1], [])
        else:
            templates.append(line.replace("\\n", "\n"))
    return {section: tuple(found) for section, found in book.items()}


@cache
def word_book(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return key -> wordings of a file of words."""
    pairs = (line.split(" = ", 1) for line in _lines("words", name))
    return {key: tuple(value.split(" | ")) for key, value in pairs}


def _lines(folder: str, name: str) -> list[str]:
    file = resources.files(__package__).joinpath(folder, f"{name}.txt")
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("# ")]


def choose(rng: Random, template: str) -> str:
    """Decide all `<a|b>` of a template."""
    while "<" in template:
        chosen = _CHOICE.sub(lambda found: rng.choice(found[1].split("|")), template)
        if chosen == template:
            break
        template = chosen
    return template


@cache
def slots_of(template: str) -> frozenset[str]:
    """Return the slots of a template that has no choices, in lower case."""
    return frozenset(name.lower() for name in SLOT.findall(template))


def wordings(template: str) -> int:
    """Count the texts that a template's choices make, before any slot is filled."""
    while found := _CHOICE.search(template):
        options = found[1].split("|")
        counts = sum(prod([int(n) for n in re.findall(r"\x00(\d+)\x00", o)]) for o in options)
        template = template[: found.start()] + f"\0{counts}\0" + template[found.end() :]
    return prod(int(n) for n in re.findall(r"\x00(\d+)\x00", template))
