"""Ask a model every question of the patients' records, with the right image and a mismatched one.

Each question is asked twice: about the patient's scan, and about another patient's. Accuracy on the
mismatched image is the language-prior baseline (`text_only`): what the wording of the question and
the frequency of the answers give without the patient's image. (An empty image would be a weaker
baseline: training never showed one, so answers about it are noise.)
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

from tqdm import tqdm

from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.items import Item, make_item
from tumorchain_jax.inference.analyzer import Analyzer, PreparedCase
from tumorchain_jax.inference.runner import Answer
from tumorchain_jax.inference.verdict import verdict
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.weights.scores import DIGITAL

PATIENTS_AT_ONCE, BATCH_SIZE = 16, 8
Asked = tuple[PreparedCase, Sequence[Record]]
"""A patient: a prepared scan, and the records whose questions are asked about it."""


def ask(
    analyzer: Analyzer,
    patients: Iterable[Asked],
    text_only: bool = True,
    rounds: int | None = None,
    domain: str = DIGITAL,
) -> list[Item]:
    """Answer every record greedily and judge the answers, in the order of the patients.

    Args:
        patients: made one by one in a thread, while the model answers.
        text_only: also ask each question about the scan of the patient before (the first patient's
            about the second's). With a single patient there is no such baseline.
        rounds: at most this many; the loop's own limit by default.
        domain: the kind of scan.

    Raises:
        InputError: a question is too long, or a record's own answer cannot be read.
    """
    count = len(patients) if isinstance(patients, Sized) else None
    each = ask_each(analyzer, patients, text_only, rounds, domain=domain)
    return [item for items in tqdm(each, "patients", count, disable=None) for item in items]


def ask_each(
    analyzer: Analyzer,
    patients: Iterable[Asked],
    text_only: bool = True,
    rounds: int | None = None,
    before: PreparedCase | None = None,
    domain: str = DIGITAL,
) -> Iterator[list[Item]]:
    """Yield the items of each patient as soon as they are answered; see `ask`.

    Args:
        before: the scan of the patient before the first, where an evaluation is resumed.
    """
    rest = iter(patients)
    with ThreadPoolExecutor(1) as thread:
        # XLA answers without the interpreter's lock: a thread is enough to make patients meanwhile.
        coming = thread.submit(_take, rest)
        while block := coming.result():
            coming = thread.submit(_take, rest)
            cases = [case for case, _ in block]
            others: list[PreparedCase | None] = [None] * len(block)
            if text_only:
                others = [before or next(iter(cases[1:]), None), *cases[:-1]]
            yield from _ask_block(analyzer, block, others, rounds, domain)
            before = cases[-1]


def _take(patients: Iterator[Asked]) -> list[Asked]:
    return list(islice(patients, PATIENTS_AT_ONCE))


def _ask_block(
    analyzer: Analyzer,
    block: Sequence[Asked],
    others: Sequence[PreparedCase | None],
    rounds: int | None,
    domain: str,
) -> Iterator[list[Item]]:
    questions = [
        (scan, record)
        for (case, records), other in zip(block, others, strict=True)
        for scan in (case, other)
        if scan is not None
        for record in records
    ]
    # By confidence alone: an earlier score of the model must not decide what this one is.
    measured = replace(analyzer.checkpoint.measured, domains={})
    answers = iter(_answers(analyzer, questions, rounds))
    for (_, records), other in zip(block, others, strict=True):
        seen = list(islice(answers, len(records)))
        unseen: list[str | None] = [None] * len(records)
        if other is not None:
            unseen = [answer.text for answer in islice(answers, len(records))]
        yield [
            make_item(
                record,
                answer.text,
                text_only,
                verdict(answer, measured, domain),
                "\n".join(each.text for each in answer.trace.rounds),
            )
            for record, answer, text_only in zip(records, seen, unseen, strict=True)
        ]


def _answers(
    analyzer: Analyzer, questions: Sequence[tuple[PreparedCase, Record]], rounds: int | None
) -> list[Answer]:
    """Answer each question."""

    def kind(number: int) -> tuple[str, int, str]:
        record = questions[number][1]
        return record.subtask, len(record.choices), record.question

    # Rows of a batch wait for the longest chain among them, so similar questions share one.
    order = sorted(range(len(questions)), key=kind)
    cases = [
        (scan, with_choices(r.question, r.choices)) for scan, r in map(questions.__getitem__, order)
    ]
    for question in {question for _, question in cases}:
        analyzer.check_question(question)
    answers = dict(zip(order, analyzer.run(cases, rounds=rounds), strict=True))
    return [answers[number] for number in range(len(questions))]
