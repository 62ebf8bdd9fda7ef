"""Judging answers: read what an answer says and compare it with the truth.

Truth and answer are read in the same way, into the same few words, so that letters, synonyms and
spelling do not matter; an answer is right when its words are those of the truth. To name a value
more ("round or irregular", a letter and the text of another choice) or to deny one ("not round") is
to say something else, and wrong; so is to say nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tumorchain_jax.anatomy.organs import SUB_ORGANS, display_name, labels_named, normalise_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.reasoning.prompt import LETTERS
from tumorchain_jax.report.conclusion import parse_conclusion

YES_NO = ("yes", "no")
NONE = "none"


@dataclass(frozen=True)
class Judgement:
    """A truth and an answer, both as they were parsed.

    Attributes:
        truth: `liver`, `T4a`, `yes`; several parts of a report as `liver; T4a; N0`.
        parsed: the same of the answer, competing values as `liver or stomach`; "" when it says
            nothing that was asked for (unparsed).
        right: whether they are the same.
    """

    truth: str
    parsed: str
    right: bool


def judge(record: Record, text: str) -> Judgement:
    """Judge what a model wrote in its last round by the truth of a record.

    A multiple-choice answer is read by letter, by the choice's text, or both; an open one by what
    its subtask asks for; a truth outside the words known here must be met word for word.

    Raises:
        InputError: the record's own answer cannot be read, or is none of its choices.
    """
    read = _reader(record)
    truth, parsed = read(record.answer), read(_conclusion(text))
    if not truth or (record.choices and truth not in map(_plain, record.choices)):
        expected = "one of the choices" if record.choices else "some text"
        raise InputError(record.patient, "answer", repr(record.answer), expected, "fix the record")
    return Judgement(truth, parsed, parsed == truth)


def _conclusion(text: str) -> str:
    """Extract the conclusion as a report does; a text cut in its thoughts has none."""
    answer = re.split("</think>", text, flags=re.IGNORECASE)[-1]
    if "<think>" in answer.lower() or not re.search(r"\w", answer):
        return ""
    return parse_conclusion(text)


def _reader(record: Record) -> Callable[[str], str]:
    if record.choices:
        return partial(_read_choice, record.choices)
    if _plain(record.answer) in YES_NO:
        return partial(_read_kinds, ["yes/no"])
    asked = _KINDS.get(record.subtask, (record.subtask,))
    spoken = [kind for kind in asked if _READERS[kind](record.answer)]
    # Without what the subtask is about, the rest of the truth would be too little to judge by.
    return partial(_read_kinds, spoken) if asked[0] in spoken else _plain


# Multiple choice.

# Nothing but the letter, or letters set off as in "B. liver"; the article "a" is neither.
_LETTER = re.compile(
    rf"^\W*(?i:(?:answer|option|choice)\W+)?((?i:[{LETTERS}]))\W*$|\b([{LETTERS}])(?=[.:)\]])"
)
# What parts words; a decimal point does not.
_START, _END = r"(?<!\w)(?<!\d\.)", r"(?!\w|\.\d)"
_DENIALS = "none|no|non|not|nothing|normal|without"


def _read_choice(choices: Sequence[str], text: str) -> str:
    texts = [_plain(choice) for choice in choices]
    lettered = dict(zip(LETTERS, texts, strict=False))
    letters = {(alone or marked).upper() for alone, marked in _LETTER.findall(text)}
    rest = _plain(_LETTER.sub("", text))
    # The longest first, so that "left lobe of the liver" does not name "liver" as well.
    phrases = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    found = re.findall(f"{_START}(?:{phrases}|{_DENIALS}){_END}", rest)
    named = {match if match in texts else NONE for match in found}
    if letters and rest and not named:
        named = {rest}
    return _either({lettered.get(letter, letter) for letter in letters} | named)


def _plain(text: str) -> str:
    bare = normalise_name(text).strip(" .,:;()[]*'\"")
    return re.sub(r"^(?:the|an?) ", "", bare)


def _either(values: set[str]) -> str:
    return " or ".join(sorted(values))


# Open questions.


def _read_kinds(kinds: Sequence[str], text: str) -> str:
    said = [_either(_READERS[kind](text)) for kind in kinds]
    return "; ".join(part or "-" for part in said) if any(said) else ""


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
_READERS: dict[str, Callable[[str], set[str]]] = {
    "organ": _organs,
    "segment": _segments,
    "third": _thirds,
    "tumor": partial(_categories, "T"),
    "node": partial(_categories, "N"),
    "metastasis": partial(_categories, "M"),
    **{kind: partial(_words, vocabulary) for kind, vocabulary in _VOCABULARIES.items()},
}
# What a subtask asks for, where that is not of its own name: the first always, the others as far as
# the truth speaks of them.
_KINDS = {
    "organ_position": ("third",),
    "tumor_position": ("organ", "segment"),
    "segment_localization": ("segment", "organ"),
    "cot_report": ("organ", "segment", "tumor", "node", "metastasis"),
}
