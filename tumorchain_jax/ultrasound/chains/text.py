"""Levels to a chain of thought: a sentence for each field that is known, level by level."""

from collections.abc import Sequence
from typing import Literal

from tumorchain_jax.ultrasound.chains.fields import LEVELS, Level, load_wording
from tumorchain_jax.ultrasound.chains.record import Levels

Form = Literal["reasoning", "think"]
ANSWERS = {"benign": "0", "malignant": "1"}


def sentences(levels: Levels, wanted: Sequence[Level] = LEVELS) -> str:
    """The sentences of some levels, in the wording's order."""
    found = []
    for name, each in load_wording().fields.items():
        given = levels.values.get(name)
        if given and each.level in wanted:
            words = _joined([each.words[v] for v in given]) if each.words else "; ".join(given)
            found.append(each.sentence.format(words))
    return " ".join(found)


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def chain(levels: Levels, form: Form = "reasoning", source: object = "levels") -> str:
    """The chain of thought of a lesion.

    Args:
        form: `reasoning`: as released, with the answer 0 or 1 in tags of its own where the label
            is known; `think`: as the paper's figure, which opens the thought and never closes it.
        source: what an error names.

    Raises:
        InputError: the levels contradict each other.
    """
    levels.check(source)
    body = f"{load_wording().opening} {sentences(levels)}".strip()
    if form == "think":
        return f"<think> {body}"
    return f"<reasoning> {body} </reasoning>{answer(levels)}"


def answer(levels: Levels) -> str:
    """The answer in its tags with a space before it; empty where the label is none of the two."""
    said = ANSWERS.get(levels.one("label"))
    return f" <answer> {said} </answer>" if said else ""
