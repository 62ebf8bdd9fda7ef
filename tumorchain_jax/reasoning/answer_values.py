"""Values that a text names, kind by kind: organs, parts, stages, attributes, numbers, choices.

Truths of records, answers of models and the conclusion of a report are read in the same way, into
the same few words, so that letters, synonyms and spelling do not matter.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tumorchain_jax.anatomy.organs import SUB_ORGANS, display_name, labels_named, normalise_name
from tumorchain_jax.reasoning.prompt import LETTERS

NONE = "none"


# Multiple choice.

# Nothing but the letter, or letters set off as in "B. liver"; the article "a" is neither.
_LETTER = re.compile(
    rf"^\W*(?i:(?:answer|option|choice)\W+)?((?i:[{LETTERS}]))\W*$|\b([{LETTERS}])(?=[.:)\]])"
)
# What parts words; a decimal point does not.
_START, _END = r"(?<!\w)(?<!\d\.)", r"(?!\w|\.\d)"
_DENIALS = "none|no|non|not|nothing|normal|without"


def choice_values(choices: Sequence[str], text: str) -> str:
    """Read which of the choices a text gives, by letter or by words; several as `a or b`."""
    texts = [plain(choice) for choice in choices]
    lettered = dict(zip(LETTERS, texts, strict=False))
    letters = {(alone or marked).upper() for alone, marked in _LETTER.findall(text)}
    rest = plain(_LETTER.sub("", text))
    # The longest first, so that "left lobe of the liver" does not name "liver" as well.
    phrases = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    found = re.findall(f"{_START}(?:{phrases}|{_DENIALS}){_END}", rest)
    named = {match if match in texts else NONE for match in found}
    if letters and rest and not named:
        named = {rest}
    return either({lettered.get(letter, letter) for letter in letters} | named)


def plain(text: str) -> str:
    """Return a text in lower case, without the article and outer punctuation."""
    bare = normalise_name(text).strip(" .,:;()[]*'\"")
    return re.sub(r"^(?:the|an?) ", "", bare)


def either(values: set[str]) -> str:
    """Join values as `a or b`; "" for none."""
    return " or ".join(sorted(values))


# Open questions.


def _organs(text: str) -> set[str]:
    named = {display_name(label) for mention in labels_named(text) for label in mention.labels}
    return named | _words({NONE: _DENIALS}, text)


# Words that say which organ, or nothing: what is left of a name says which part of it.
_ORGAN_WORDS = {
    5: {"liver", "hepatic"},
    6: {"stomach", "gastric"},
    7: {"pancreas", "pancreatic"},
    15: {"esophagus", "thoracic"},
    20: {"colon"},
}


def _part(label: int, name: str) -> tuple[int, frozenset[str]]:
    american = normalise_name(name).replace("oesophag", "esophag").replace("caec", "cec")
    return label, frozenset(american.split()) - {"of", "the"} - _ORGAN_WORDS.get(label, set())


_SEGMENTS = {_part(label, name): name for label, names in SUB_ORGANS.items() for name in names}


def _segments(text: str) -> set[str]:
    parts = [_part(label, m.name) for m in labels_named(text) for label in m.labels]
    return {_SEGMENTS[part] for part in parts if part in _SEGMENTS}


def _categories(letter: str, text: str) -> set[str]:
    apart = re.sub(r"(?<=[0-9a-dx])(?=[nm][0-9x])", " ", text.lower())  # T4aN1M0
    pattern = rf"(?<![^\W_])[cpy]*{letter.lower()}([0-4][a-d]?|is|x)(?![^\W_])"
    return {letter + category for category in re.findall(pattern, apart)}


def _words(vocabulary: Mapping[str, str], text: str) -> set[str]:
    plain = normalise_name(text)
    return {
        value
        for value, pattern in vocabulary.items()
        if re.search(f"{_START}(?:{pattern}){_END}(?! ?[cm]m)", plain)
    }


_THIRDS = {
    "upper third": "upper|upmost|top|superior|cranial",
    "middle third": "middle|mid|central",
    "lower third": "lower|lowest|bottom|inferior|caudal",
}


_PLACE = "|".join(_THIRDS.values())
_THIRD = re.compile(rf"{_START}(?:(?:{_PLACE})(?: third)?(?:,| or| and) )*(?:{_PLACE}) third{_END}")


def _thirds(text: str) -> set[str]:
    """Read only the words before `third`, if it is said: an organ has a middle and a top too."""
    said = " ".join(_THIRD.findall(normalise_name(text)))
    return _words(_THIRDS, said or text) | _words({NONE: _DENIALS}, text)


_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Kind -> how each of its values may be put; hyphens are read as spaces.
_VOCABULARIES = {
    "yes/no": {"yes": "yes", "no": "no"},
    "shape": {
        "round": "round|rounded|spherical",
        "oval": "oval|ovoid",
        "lobulated": "lobulated",
        "irregular": "irregular",
        NONE: _DENIALS,
    },
    "boundary": {
        "well-defined": "(?:well|clearly) (?:defined|circumscribed|demarcated)|clear|sharp",
        "ill-defined": "(?:ill|poorly) (?:defined|circumscribed|demarcated)|unclear|indistinct",
        NONE: _DENIALS,
    },
    "density": {
        "hypodense": "hypo ?(?:dense|attenuating)|low (?:density|attenuation)",
        "isodense": "iso ?(?:dense|attenuating)",
        "hyperdense": "hyper ?(?:dense|attenuating)|high (?:density|attenuation)",
        "heterogeneous": "heterogeneous|mixed",
        NONE: _DENIALS,
    },
    "count": {
        NONE: f"0|zero|{_DENIALS}",
        "1": "1|one|single|solitary",
        **{str(number): f"{number}|{word}" for number, word in enumerate(_NUMBERS, 2)},
    },
    "others": {
        "calcification": "calcifications?|calcified",
        "enhancement": "enhancement|enhancing|enhanced",
        "wall thickening": "(?:wall )?thickening|thickened",
        "ductal dilatation": "dilatation|dilation|dilated",
        NONE: _DENIALS,
    },
}
READERS: dict[str, Callable[[str], set[str]]] = {
    "organ": _organs,
    "segment": _segments,
    "third": _thirds,
    "tumor": partial(_categories, "T"),
    "node": partial(_categories, "N"),
    "metastasis": partial(_categories, "M"),
    **{kind: partial(_words, vocabulary) for kind, vocabulary in _VOCABULARIES.items()},
}
"""Kind -> the values of this kind that a text names, as a set of a few words."""
