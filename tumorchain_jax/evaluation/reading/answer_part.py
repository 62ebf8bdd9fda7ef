"""The part of a model's text that answers; or why nothing in it does."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Why = Literal[
    "empty",
    "refusal",
    "ambiguous",
    "no_choice",
    "invalid_choice",
    "no_number",
    "no_yes_no",
    "cut",
    "error",
]
ERROR_MARK = "[ERROR]"
"""Begins the text that a runner keeps where the model raised an error."""
LONGEST = 10_000
"""Characters; what is longer after the reasoning is no answer to one question."""


@dataclass(frozen=True)
class Abstained:
    """A text that gives no answer, and why.

    Attributes:
        why: `empty`; `refusal`; `ambiguous` (several answers); `no_choice`, `no_number`,
            `no_yes_no` (not what was asked for); `invalid_choice` (a letter that is none of the
            question's); `cut` (it ends within its reasoning); `error` (of the program, not an
            answer).
    """

    why: Why


_CLOSED = re.compile(r"</\s*think(?:ing)?\s*>", re.IGNORECASE)
_OPEN = re.compile(r"<\s*think(?:ing)?\s*>", re.IGNORECASE)
_ANSWER = re.compile(r"<\s*answer\s*>(.*?)(?:<\s*/\s*answer\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_POWER = re.compile("(?<=10)[⁻⁰¹²³⁴-⁹]+")
_REFUSAL = re.compile(
    r"\b(?:can(?:no|')?t|can not|could(?: not|n't)|unable|impossible|not able|not possible|"
    r"(?:do|does|did)(?: not|n't) know|not sure|unsure|unclear|"
    r"(?:cannot|not) be (?:determined|assessed|answered)|as an ai|not enough information|"
    r"no information|no idea|no way (?:to|of)|no answer|insufficient|"
    r"non-?diagnostic|sorry|refuse|indeterminable)\b",
    re.IGNORECASE,
)
_NO_IMAGE = re.compile(
    r"\b(?:no|without an?|missing|not|cannot|can'?t|couldn't)\s+(?:see |view |access |open )?"
    r"(?:the |any |an? |this )?"
    r"(?:images?|scans?|pictures?|ct)\b(?! (?:findings?|evidence|signs?))",
    re.IGNORECASE,
)


def answer_part(text: str) -> str | Abstained:
    """Return what stands after the reasoning and inside the last answer tag, NFKC normalised.

    Invisible characters (Unicode category Cf) go; powers of ten keep their sign: `10^2`.
    """
    text = _POWER.sub(lambda power: "^" + power[0].translate(_SUPERSCRIPTS), text)
    text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u066b", ".")
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").strip()
    if text.startswith(ERROR_MARK):
        return Abstained("error")
    text = _CLOSED.split(text)[-1]
    if _OPEN.search(text):
        return Abstained("cut")
    if tagged := _ANSWER.findall(text):
        text = tagged[-1]
    text = text.strip()
    if len(text) > LONGEST:
        return Abstained("ambiguous")
    return text if re.search(r"\w", text) else Abstained("empty")


def no_image(text: str) -> bool:
    """Whether a text says that there is no image, or that it cannot be seen."""
    return bool(_NO_IMAGE.search(text))


def refuses(text: str) -> bool:
    """Whether a text says that it cannot answer."""
    return bool(_REFUSAL.search(text)) or no_image(text)
