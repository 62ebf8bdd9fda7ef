"""Does a question agree with itself? One that does not would be scored against a wrong truth."""

from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import Subtype, key
from tumorchain_jax.evaluation.reading.choices import read_choice
from tumorchain_jax.evaluation.reading.numbers import Quantity, read_number

HINT = "correct the row, or take the question file as it was published"
_NO_NUMBERS = ("nan", "inf", "infinity")
_ROUNDING, _SHARE = 0.0501, 0.05
"""An option may be the answer, rounded: to one digit, or by this share of it."""


def check_image_id(source: object, image_id: str) -> None:
    """Refuse the name of a CT that leads out of the folder of the CTs.

    Raises:
        InputError: it is no plain name.
    """
    plain = {PurePosixPath(image_id).name, PureWindowsPath(image_id).name} == {image_id}
    if not plain or image_id == ".." or not image_id.isprintable():
        expected = "the plain name of a CT, without folders"
        raise InputError(source, "image_id", repr(image_id), expected, HINT)


def check_type(source: object, stated: str, subtype: Subtype) -> None:
    """Refuse a type that is not the subtype's.

    Raises:
        InputError: it is another.
    """
    if key(stated) != subtype.type:
        expected = f"{subtype.type}, the type of {subtype.name}"
        raise InputError(source, "question_type", repr(stated), expected, HINT)


def check_options(source: object, options: Mapping[str, str], quantity: Quantity | None) -> None:
    """Refuse options that are no numbers of JSON or CSV, or twice the same number.

    Args:
        options: letter -> text.
        quantity: what the options are numbers of, if they are.

    Raises:
        InputError: one is.
    """
    for letter, text in options.items():
        if _is_no_number(text):
            expected = "a text or a finite number"
            raise InputError(source, "mc_question", f"option {letter}: {text}", expected, HINT)
    seen: dict[float, str] = {}
    for letter, text in options.items() if quantity else ():
        assert quantity is not None
        number = read_number(text, quantity)
        if isinstance(number, float) and (other := seen.setdefault(number, letter)) != letter:
            found = f"options {other} and {letter}, both {number:g}"
            raise InputError(source, "mc_question", found, "different options", HINT)


def check_answer(
    source: object, answer: str, letter: str, options: Mapping[str, str], quantity: Quantity | None
) -> None:
    """Refuse an answer that is not what the right option says.

    An empty answer, or one that cannot be read, is counted when the question is scored.

    Raises:
        InputError: it says another option, none, or another number.
    """
    option = options[letter]
    expected = f"what correct_option {letter} says, {option!r}"
    if _is_no_number(answer):
        raise InputError(source, "answer", repr(answer), expected, HINT)
    if not answer.strip() or answer.strip().casefold() == option.casefold():
        return
    if quantity is not None:
        _check_number(source, answer, letter, options, quantity)
        return
    read = read_choice(options, answer)
    if isinstance(read, str) and read != letter:
        raise InputError(source, "answer", f"{answer!r}, option {read}", expected, HINT)
    if not isinstance(read, str) and read.why in ("no_choice", "invalid_choice"):
        raise InputError(source, "answer", f"{answer!r}, none of the options", expected, HINT)


def _check_number(
    source: object, answer: str, letter: str, options: Mapping[str, str], quantity: Quantity
) -> None:
    said = read_number(answer, quantity)
    if not isinstance(said, float):
        return
    read = {name: read_number(text, quantity) for name, text in options.items()}
    off = {name: abs(said - each) for name, each in read.items() if isinstance(each, float)}
    if letter not in off:
        return
    if off[letter] > min(off.values()) or off[letter] > max(_ROUNDING, _SHARE * abs(said)):
        expected = f"about what correct_option {letter} says, {options[letter]!r}"
        raise InputError(source, "answer", repr(answer), expected, HINT)


def _is_no_number(text: str) -> bool:
    return text.strip().lstrip("+-").casefold() in _NO_NUMBERS
