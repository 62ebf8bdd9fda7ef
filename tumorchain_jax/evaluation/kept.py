"""Answers that another model gave elsewhere, put to the questions and truths of saved items.

A file of JSON lines, one answer each: `patient`, `question` and `answer`, with `choices` where the
question has some, and `chain` where the whole reasoning was kept. `items.jsonl` of an evaluation
says what is asked; other fields of its lines are left alone, so a filled copy of it will do.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines
from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.reasoning.prompt import LETTERS

_Key = tuple[str, str, tuple[str, ...]]
_LINE = "a line has patient, question, choices if there are any, and answer"
_HINT = "answer every question of the items once"


def with_answers(items: Sequence[Item], path: Path) -> list[Item]:
    """Judge the answers of a file in place of those of the items, whose order is kept.

    The same question to the same patient, asked twice, takes its answers in their order.

    Raises:
        InputError: a line is no answer; a question has no answer, or more than one; an answer is to
            no question; a truth cannot be read again.
    """
    answers: dict[_Key, list[tuple[str, str]]] = defaultdict(list)
    sources: dict[_Key, str] = {}
    for source, _, values in read_lines(path, _LINE):
        fields = LineFields(source, values, hint=_LINE)
        choices = fields.choices("choices", len(LETTERS)) if values.get("choices") else ()
        key = fields.text("patient"), fields.text("question"), choices
        answers[key].append((fields.text("answer"), fields.text("chain", "")))
        sources[key] = source
    judged = []
    for item in items:
        kept = answers[item.patient, item.question, item.choices]
        if not kept:
            found = f"none for {item.patient}: {item.question}"
            raise InputError(path, "answer", found, "one for every question", _HINT)
        judged.append(judged_again(item, *kept.pop(0), path))
    for key, left in answers.items():
        if left:
            found = f"an answer to no question, or to one that has its answer: {key[1]}"
            raise InputError(sources[key], "question", found, "a question of the items", _HINT)
    return judged


def judged_again(item: Item, answer: str, chain: str, source: object) -> Item:
    """Judge another model's answer to an item's question.

    Args:
        chain: its whole reasoning, if it was kept.
        source: of the answer, for errors.

    Raises:
        InputError: the item's truth cannot be read again.
    """
    record = Record(
        item.patient, 0, item.task, item.subtask, 0, item.question, item.choices, (), "", item.truth
    )
    judgement = judge(record, answer)
    if judgement.truth != item.truth:
        found, expected = f"{judgement.truth!r} in {item.truth!r}", "the truth as it was read"
        raise InputError(source, "truth", found, expected, "evaluate again with this version")
    return replace(
        item,
        answer=answer,
        parsed=judgement.parsed,
        right=judgement.right,
        text_only_right=None,
        log_probability=None,
        confidence=None,
        withheld="",
        chain=chain,
    )
