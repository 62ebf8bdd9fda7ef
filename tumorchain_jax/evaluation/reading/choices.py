"""Which of a question's options a text gives, by letter or in the option's words."""

import re
from collections.abc import Mapping

from tumorchain_jax.evaluation.reading.answer_part import Abstained, refuses
from tumorchain_jax.evaluation.reading.numbers import Quantity, numbers, read_number
from tumorchain_jax.evaluation.reading.option_words import named_options

LETTERS = "ABCDEFGHIJ"
_WRAPPING = re.compile(r"\\(?:boxed|text|textbf|mathrm)\b")
_BARE = re.compile(rf"[\W_]*([{LETTERS}])(?:[\W_]+\1)*[\W_]*", re.IGNORECASE)
_ALONE = rf"(?<![\w'])[{LETTERS}](?![\w']|-\w)"
_LIST = re.compile(rf"{_ALONE}(?:\s*(?:,|/|&|\bor\b|\band\b|,\s*or\b|,\s*and\b)\s*{_ALONE})+")
_NEITHER = re.compile(
    rf"\b(?i:neither)\s+{_ALONE}(?:\s*(?:,|nor|or)\s*{_ALONE})+"
    r"|\b(?i:not|nor|isn't|never|rather than|instead of|exclude)\s+"
    rf"(?:(?:option|choice)\s+)?{_ALONE}"
)
_MARK = r"(?:\b(?i:{})\b|答案|选项|选择|选)"
_MARKED = r"[\s\"'*:=(\[{{$\\]*(?:\b(?i:is|was|would be|should be)\b)?[\s\"'*:=(\[{{$\\]*"
_LETTER = (
    rf"(?:([{LETTERS}])(?!\w|'|[-/]\w)(?! (?!because\b|since\b|as\b|is\b|with\b)[a-z])"
    rf"|([{LETTERS.lower()}])(?=\W*$|[.:)\]}},\"*]))"
)
_FINAL = re.compile(_MARK.format("(?:final|correct) answer") + _MARKED.format() + _LETTER)
_AFTER = re.compile(_MARK.format("answer|option|choice|boxed") + _MARKED.format() + _LETTER)
_START = re.compile(
    rf"[\W_]*(?:([{LETTERS}])(?:\s*[.:)\],]|\s*\n|\s*$)|([{LETTERS.lower()}])\s*[.:)\]])"
)
# A lone capital that is an article or part of a name.
_LABEL = re.compile(
    r"\b(?:hepatitis|grade|type|class|stage|group|vitamin|phase|segment|score|category|figure|"
    r"image|series|child-pugh|model|part|level|zone|dr\.?)\s+$",
    re.IGNORECASE,
)
_LONE = re.compile(_ALONE)
_ARTICLE = re.compile(r"\s+(?!(?:is|was|because|since|would|seems)\b)[a-z]")
_SET_OFF = re.compile(rf"(?:^|[.;\n])\s*([{LETTERS}])\s*[:)]")
_NOT_A_LETTER = re.compile(r"\bN\s*/\s*A\b", re.IGNORECASE)


def read_choice(
    options: Mapping[str, str], text: str, quantity: Quantity | None = None
) -> str | Abstained:
    """Read the letter of the option that a text gives.

    In this order: a bare letter; a letter after "answer"; a letter set off at the start; an
    option's text; a capital that stands alone. A letter that the option's text contradicts, or two
    options, are `ambiguous`.

    Args:
        options: letter -> text.
        text: as `answer_part` gives it.
        quantity: what the options are numbers of, if they are.
    """
    plain = _NOT_A_LETTER.sub(" ", _WRAPPING.sub(" ", text)).strip()
    if bare := _BARE.fullmatch(plain):
        return _valid(options, bare[1])
    if _LIST.search(without := _NEITHER.sub(" ", plain)) and not _FINAL.search(without):
        listed = _LIST.search(without)
        if listed and len(set(re.findall(_ALONE, listed[0]))) > 1:
            return Abstained("ambiguous")
    for pattern in (_FINAL, _AFTER, _START):
        marks = [pattern.match(without)] if pattern is _START else list(pattern.finditer(without))
        found = {(m[1] or m[2]).upper(): m.end() for m in marks if m}
        if len(found) > 1 or (found and pattern is _START and _several(without)):
            return Abstained("ambiguous")
        for letter, end in found.items():
            tail = without[end:].lstrip(" \t)].:*")
            line = "" if without[end - 1] == "\n" else tail.split("\n")[0]
            return _agreeing(options, letter, _named(options, line, quantity))
    named = _named(options, plain, quantity)
    letters = {m[0] for m in _LONE.finditer(without) if not _is_word(without, m)}
    if len(letters | named) > 1:
        return Abstained("ambiguous")
    for letter in letters | named:
        return _valid(options, letter)
    return Abstained("refusal" if refuses(plain) else "no_choice")


def _valid(options: Mapping[str, str], letter: str) -> str | Abstained:
    return letter.upper() if letter.upper() in options else Abstained("invalid_choice")


def _several(text: str) -> bool:
    """Whether several letters are set off: the options again, or a comment on each."""
    return len(set(_SET_OFF.findall(text))) > 1


def _agreeing(options: Mapping[str, str], letter: str, named: set[str]) -> str | Abstained:
    if letter in options and named - {letter}:
        return Abstained("ambiguous")
    return _valid(options, letter)


def _is_word(text: str, letter: re.Match[str]) -> bool:
    """Whether a lone capital is an article ("A cyst", "I see") or part of a name ("grade B")."""
    if letter[0] == "I" or (letter[0] == "A" and _ARTICLE.match(text[letter.end() :])):
        return True
    return bool(_LABEL.search(text[: letter.start()]))


def _named(options: Mapping[str, str], text: str, quantity: Quantity | None) -> set[str]:
    if quantity is None:
        return named_options(options, text)
    values = {letter: read_number(option, quantity) for letter, option in options.items()}
    said = {round(each.value, 9) for each in numbers(text, quantity)}
    return {
        letter
        for letter, value in values.items()
        if isinstance(value, float) and round(value, 9) in said
    }
