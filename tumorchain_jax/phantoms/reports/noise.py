"""What happens to a text after it is written: slips of the keys, capitals, spelling."""

import re
from random import Random

from tumorchain_jax.phantoms.reports.styles import Style

_BRITISH = (
    ("tumor", "tumour"), ("Tumor", "Tumour"), ("esophag", "oesophag"), ("Esophag", "Oesophag"),
    ("cecum", "caecum"), ("Cecum", "Caecum"), ("hemangioma", "haemangioma"),
    ("Hemangioma", "Haemangioma"), ("center", "centre"), ("neighbor", "neighbour"),
    ("anemia", "anaemia"), ("hemato", "haemato"), ("edema", "oedema"), ("celiac", "coeliac"),
)  # fmt: skip
_WORD = re.compile(r"[a-z]{6,}")
TYPO_SHARE = 0.04
"""Of the words of six letters and more."""


def apply(style: Style, text: str, rng: Random) -> str:
    """Return the text as the style's reader gets it."""
    if style.british:
        for american, british in _BRITISH:
            text = re.sub(rf"(?<![a-zA-Z]o)(?<!h)(?<!ha){american}(?!ur)", british, text)
    if style.slips == "typos":
        text = _WORD.sub(lambda found: _slip(found[0], rng), text)
    if style.slips == "capitals":
        text = _no_break(text.upper(), rng).replace("\n", "\r\n")
    return text


def _slip(word: str, rng: Random) -> str:
    """Leave out, double or exchange a letter within a word; mostly do nothing."""
    if rng.random() >= TYPO_SHARE:
        return word
    at = rng.randrange(1, len(word) - 2)
    kind = rng.randrange(3)
    if kind == 0:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at] + word[at:]
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _no_break(text: str, rng: Random) -> str:
    """Put no-break spaces between numbers and units, and here and there."""
    text = re.sub(r"(?<=\d) (?=MM|CM)", "\u00a0", text)
    return "".join("\u00a0" if c == " " and rng.random() < 0.04 else c for c in text)
