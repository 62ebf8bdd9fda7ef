"""Answers to a question with a small vocabulary: one of its options, or something else."""

from collections.abc import Mapping

from tumorchain_jax.evaluation.reading.answer_part import Abstained
from tumorchain_jax.evaluation.reading.choices import read_choice
from tumorchain_jax.evaluation.reading.option_words import named_options, spelling

OTHER = "other"
"""An answer outside the vocabulary: wrong, but an answer."""


def read_category(options: Mapping[str, str], text: str) -> str | Abstained:
    """Read which option's text is given, by letter or in words; `OTHER` for another answer.

    Args:
        options: letter -> text; without any, the text itself is the answer.
        text: as `answer_part` gives it.
    """
    if not options:
        return spelling(text).strip(" .,:;!?*_`\"'()[]{}$#>-") or Abstained("empty")
    letter = read_choice(options, text)
    if isinstance(letter, str):
        return options[letter]
    if letter.why == "invalid_choice" and text.strip().islower():
        return OTHER  # "m" is a word cut short
    if letter.why != "no_choice":
        return letter
    plain = text.strip(" .,*")
    if plain.isdigit():
        return Abstained("ambiguous")  # of which vocabulary is a mere number?
    return Abstained("no_choice") if plain.upper() in ("N/A", "NA") else OTHER


def read_truth(options: Mapping[str, str], text: str) -> str:
    """Return a category's truth as `read_category` would give it; "" if there is none."""
    named = named_options(options, text)
    if len(named) == 1:
        return options[named.pop()]
    return spelling(text).strip(" .,:;")
