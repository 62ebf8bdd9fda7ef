"""Judged chains as JSON lines: `judged.jsonl`, which can be read back and scored again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import parse_line
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.evaluation.chain.f1 import Harm, weigh
from tumorchain_jax.evaluation.chain.rubric import HIGHEST, NAMES, Marks
from tumorchain_jax.evaluation.chain.verdict import JUDGED, STATES, Case, ChainVerdict, silence
from tumorchain_jax.evaluation.items import Item, Key, check_once

_HINT = "judge the items again"


@dataclass(frozen=True)
class Judged:
    """One chain, and what the judge and the rules say of it.

    Attributes:
        patient, scan, subtask, question, choices, truth: of the item.
        state, why: as `ChainVerdict`.
        marks: by dimension; None unless judged.
        agrees: whether the conclusion is right, as the judge sees it; None unless judged.
        right: the same, as the reader of `answers.py` sees it.
        harm: weights of right, wrong and missing statements, as the rules read them; None where
            the chain is silent or the reference says nothing that weighs.
        sum_differs, attempts: as `ChainVerdict`.
        said: statements that the rules read, as text.
    """

    patient: str
    scan: int
    subtask: str
    question: str
    choices: tuple[str, ...]
    truth: str
    state: str
    why: str
    marks: dict[str, int] | None
    agrees: bool | None
    right: bool
    harm: tuple[float, float, float] | None
    sum_differs: bool = False
    attempts: int = 0
    said: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Tells which question to which scan it is, as `Item.key`."""
        return self.patient, self.scan, self.subtask, self.question, self.choices, self.truth

    @property
    def scores(self) -> Marks | None:
        """The marks with their sums."""
        return Marks(self.marks) if self.marks is not None else None

    @property
    def weights(self) -> Harm | None:
        """The weights with their precision, recall and F1."""
        return Harm(*self.harm) if self.harm is not None else None

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def case_of(item: Item, source: object) -> Case:
    """Make what a judge is given from an item of `tumorchain evaluate`.

    Raises:
        InputError: the item was kept without its reference chain.
    """
    if not item.reference:
        expected = "the record's own chain, to judge by"
        raise InputError(source, "reference", "none", expected, "evaluate again to keep it")
    chain = item.chain or item.answer
    return Case(
        item.patient, item.subtask, item.question, item.choices, chain, item.reference, item.right
    )


def judged(item: Item, case: Case, verdict: ChainVerdict) -> Judged:
    """Put an item and its verdict together; triples are weighed by rules, whoever judges."""
    said = [] if silence(case.chain) else [statement.triple for statement in case.said]
    harm = weigh(said, case.true) if case.true.required and not silence(case.chain) else None
    return Judged(
        item.patient,
        item.scan,
        item.subtask,
        item.question,
        item.choices,
        item.truth,
        verdict.state,
        verdict.why,
        dict(verdict.marks.of) if verdict.marks else None,
        verdict.right,
        item.right,
        (harm.right, harm.wrong, harm.missing) if harm else None,
        verdict.sum_differs,
        verdict.attempts,
        tuple(map(str, said)),
    )


def read_judged(path: Path) -> list[Judged]:
    """Read a file of judged chains.

    Raises:
        InputError: it cannot be read, a line is none, or is about what another is.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        found, expected = error.strerror or str(error), "the judged.jsonl of `tumorchain judge -o`"
        raise InputError(path, "path", found, expected, "check the path") from error
    rows = [judged_of(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    check_once(path, [row.key for row in rows])
    return rows


def judged_of(line: bytes, source: str) -> Judged:
    """Read and check one line.

    Raises:
        InputError: it is something else.
    """
    values = parse_line(line, source, unique=True, hint=_HINT)
    names = {field.name for field in fields(Judged)}
    if set(values) != names:
        odd = ", ".join(sorted(set(values) ^ names))
        raise InputError(source, "judged", f"{odd} missing or unknown", "every field", _HINT)
    _check(values, source)
    harm = None if values["harm"] is None else tuple(map(float, values["harm"]))
    texts = {name: tuple(values[name]) for name in ("choices", "said")}
    return Judged(**{**values, **texts, "harm": harm})


def _check(values: Mapping[str, Any], source: str) -> None:
    marks, harm, judged_so = values["marks"], values["harm"], values["state"] == JUDGED
    whole = isinstance(marks, dict) and set(marks) == set(NAMES)
    sound = whole and all(type(m) is int and 0 <= m <= HIGHEST for m in marks.values())
    weights = isinstance(harm, list) and [type(w) in (int, float) and w >= 0 for w in harm]
    expected = {
        **{
            name: (isinstance(values[name], str), "text")
            for name in ("patient", "question", "truth")
        },
        **{
            name: (type(values[name]) is int and values[name] >= 0, "a whole number from 0 on")
            for name in ("scan", "attempts")
        },
        **{
            name: (isinstance(each := values[name], list) and {*map(type, each)} <= {str}, "texts")
            for name in ("choices", "said")
        },
        "state": (values["state"] in STATES, " or ".join(STATES)),
        "subtask": (values["subtask"] in TASK_OF, "one of Table 1"),
        "marks": (
            sound if judged_so else marks is None,
            f"ten whole numbers from 0 to {HIGHEST} where the state is judged, else null",
        ),
        "right": (isinstance(values["right"], bool), "true or false"),
        "agrees": (
            isinstance(values["agrees"], bool | None) and (judged_so or values["agrees"] is None),
            "true, false or null; null unless judged",
        ),
        "why": (
            isinstance(values["why"], str) and bool(values["why"]) != judged_so,
            "a reason unless judged, else none",
        ),
        "harm": (harm is None or weights == [True] * 3, "three weights from 0 on, or null"),
        "sum_differs": (isinstance(values["sum_differs"], bool), "true or false"),
    }
    for name, (good, wanted) in expected.items():
        if not good:
            raise InputError(source, name, repr(values[name])[:80], wanted, _HINT)


def to_lines(rows: Sequence[Judged]) -> str:
    """Format judged chains as JSON lines."""
    return "".join(row.to_line() for row in rows)
