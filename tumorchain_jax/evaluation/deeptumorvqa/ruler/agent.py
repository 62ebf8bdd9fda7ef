"""The rule agent: what a question is about, and what the measurements answer."""

from tumorchain_jax.anatomy.organs import LIVER
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import Measured
from tumorchain_jax.evaluation.deeptumorvqa.ruler.rules import GROUPS, answer
from tumorchain_jax.evaluation.reading.numbers import read_number

UNKNOWN = "I cannot tell: there is nothing to measure."
_ALIASES = {"pancreatic": "pancreas", "hepatic": "liver", "splenic": "spleen", "colonic": "colon"}
_ALIASES |= {"kidney": "kidneys", "renal": "kidneys"}


def answer_question(measured: Measured, question: Question, form: Format) -> str:
    """Answer a question: a letter, or a text; `UNKNOWN` where there is nothing to measure."""
    about = _about(question)
    try:
        value = answer(measured, question.subtype.name, about)
    except (IndexError, KeyError, ValueError):  # the words name no organ that the rule is about
        value = None
    if value is None:
        return UNKNOWN
    if form == "mc":
        return _letter(question, value)
    return value if isinstance(value, str) else f"{value:.4g}"


def _about(question: Question) -> tuple[str, ...]:
    """Read which organs, or which part of the liver, a question is about, in its own order."""
    text = question.question.lower()
    parts = sorted(SEGMENTS[LIVER], key=len, reverse=True)
    if question.subtype.name == "lesion count by location":
        for part in parts:
            if part.lower() in text:
                return (part,)
    found: list[tuple[int, str]] = []
    rest = text
    names = {**{name: name for name in GROUPS}, **_ALIASES}
    for name in sorted(names, key=len, reverse=True):
        at = rest.find(name)
        if at >= 0:
            found.append((at, names[name]))
            rest = rest.replace(name, " " * len(name))
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


def _letter(question: Question, value: str | float) -> str:
    """Return the letter of the option that says it, or comes closest to a number."""
    if isinstance(value, str):
        letters = {text.strip().lower(): letter for letter, text in question.options.items()}
        return letters.get(value.lower(), UNKNOWN)
    assert question.subtype.quantity is not None
    numbers = {
        letter: read_number(text, question.subtype.quantity)
        for letter, text in question.options.items()
    }
    known = {letter: n for letter, n in numbers.items() if isinstance(n, float)}
    return min(known, key=lambda letter: abs(known[letter] - value)) if known else UNKNOWN
