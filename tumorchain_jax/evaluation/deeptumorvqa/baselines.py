"""Answers without a scan: the most frequent one of each subtype, and a random option."""

import random
from collections import Counter
from collections.abc import Sequence
from statistics import median

from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question
from tumorchain_jax.evaluation.reading.numbers import read_number


def majority(questions: Sequence[Question], form: Format) -> dict[str, str]:
    """Answer with the most frequent truth of each subtype, of free numbers with their median.

    In multiple choice that is a text, and the most frequent letter where no option says it; or the
    letter alone if that is right more often.

    It is taken from these very questions: the best that a constant answer can do.

    Returns:
        qid -> text.
    """
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.subtype.name, []).append(question)
    return {qid: text for each in groups.values() for qid, text in _constant(each, form).items()}


def _constant(group: Sequence[Question], form: Format) -> dict[str, str]:
    quantity = group[0].subtype.quantity
    if form == "freeform" and quantity is not None:
        numbers = [read_number(question.answer, quantity) for question in group]
        middle = median([number for number in numbers if isinstance(number, float)] or [0.0])
        return {question.qid: f"{middle:.4g}" for question in group}
    texts = Counter(question.options[question.correct_option] for question in group)
    text, frequent = texts.most_common(1)[0]
    if form == "freeform":
        return {question.qid: text for question in group}
    letter, as_often = Counter(question.correct_option for question in group).most_common(1)[0]
    found = {question.qid: _letter_of(question, text) for question in group}
    elsewhere = sum(q.correct_option == letter and not found[q.qid] for q in group)
    if as_often > frequent + elsewhere:
        return {question.qid: letter for question in group}
    return {qid: named or letter for qid, named in found.items()}


def _letter_of(question: Question, text: str) -> str:
    return next((letter for letter, each in question.options.items() if each == text), "")


def chance(questions: Sequence[Question], form: Format) -> dict[str, str]:
    """Answer with a random option, the same at every call.

    Returns:
        qid -> text.
    """
    letters = {q.qid: random.Random(q.qid).choice(list(q.options)) for q in questions}
    if form == "mc":
        return letters
    return {q.qid: q.options[letters[q.qid]] for q in questions}
