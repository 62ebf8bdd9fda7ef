"""What reviewers said: their files, how far they agree, and the rates beside the paper's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.data.schema import SUBTASKS, TASK_OF
from tumorchain_jax.engine.agents.traces import record_line
from tumorchain_jax.engine.review.sample import Sample
from tumorchain_jax.engine.run.reading import Kept, read_stored
from tumorchain_jax.engine.run.screen import fault
from tumorchain_jax.evaluation.agreement import kappa

FORMAT = 1
QUALITIES = ("high", "acceptable", "poor")
PAPER_USABLE, PAPER_HIGH = 95.88, 97.85
"""Per cent of the paper's 5,000 that were usable, and of these of high quality (11.5)."""
CORRECTED = "corrected.jsonl"
_FIELDS = {"usable", "quality", "note", "text", "answer", "at"}
_HINT = "hand in the file that the review page wrote"


@dataclass(frozen=True)
class Verdict:
    """A reviewer's verdict on a record.

    Attributes:
        usable: whether it matches the report and is of clinical use; None where it is not said.
        quality: one of `QUALITIES`; empty where it is not said, or not usable.
        note: a remark.
        text, answer: corrected text of the last round, and answer; None where they stay.
        at: when it was given, in milliseconds since 1970.
    """

    usable: bool | None
    quality: str = ""
    note: str = ""
    text: str | None = None
    answer: str | None = None
    at: int = 0


@dataclass(frozen=True)
class Rate:
    """A share of some records.

    Attributes:
        count, total: how many of how many.
        low, high: its 95 % interval (Wilson), in per cent.
    """

    count: int
    total: int
    low: float
    high: float

    @property
    def percent(self) -> float:
        """The share in per cent; 0 of none."""
        return 100 * self.count / self.total if self.total else 0.0


def read_verdicts(path: Path, sample: Sample) -> tuple[str, dict[str, Verdict]]:
    """Read a reviewer's file.

    Returns:
        The reviewer, and the verdict on each record.

    Raises:
        InputError: it is no such file, of another sample, or malformed.
    """
    values = read_json(path)

    def refuse(field: str, found: object, expected: str) -> InputError:
        return InputError(path, field, repr(found)[:100], expected, _HINT)

    if values.get("format") != FORMAT:
        raise refuse("format", values.get("format"), str(FORMAT))
    if values.get("sample") != sample.digest:
        raise refuse("sample", values.get("sample"), f"{sample.digest}, the sample of this review")
    reviewer, verdicts = values.get("reviewer"), values.get("verdicts")
    if not isinstance(reviewer, str) or not reviewer:
        raise refuse("reviewer", reviewer, "a name")
    if not isinstance(verdicts, dict):
        raise refuse("verdicts", verdicts, "verdicts by record")
    read: dict[str, Verdict] = {}
    for id, each in verdicts.items():
        if id not in sample.subtasks:
            raise refuse("verdicts", id, "records of the sample")
        if not isinstance(each, dict) or set(each) - _FIELDS:
            raise refuse(f"verdicts.{id}", each, f"an object of {', '.join(sorted(_FIELDS))}")
        texts = [each.get("note", ""), each.get("quality", "")]
        texts += [value for name in ("text", "answer") if (value := each.get(name)) is not None]
        said = each.get("usable")
        is_text = all(isinstance(value, str) for value in texts)
        if said not in (True, False, None) or not is_text or type(each.get("at", 0)) is not int:
            raise refuse(f"verdicts.{id}", each, "usable as true or false, and texts")
        verdict = Verdict(**{"usable": said, **each})
        if verdict.quality not in ("", *QUALITIES) or (verdict.quality and not verdict.usable):
            expected = f"{' or '.join(QUALITIES)}, of what is usable"
            raise refuse(f"verdicts.{id}.quality", verdict.quality, expected)
        read[id] = verdict
    return reviewer, read


def rate(count: int, total: int) -> Rate:
    """A share with its Wilson interval."""
    if not total:
        return Rate(0, 0, 0.0, 100.0)
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return Rate(count, total, 100 * float(interval.low), 100 * float(interval.high))


def summary(sample: Sample, files: Mapping[str, Mapping[str, Verdict]]) -> dict[str, Any]:
    """Rates of each reviewer, by task and in all, and the agreement of each two.

    Args:
        files: reviewer -> verdict on each record.
    """
    groups = {"all": set(TASK_OF), **{task: set(subtasks) for task, subtasks in SUBTASKS.items()}}
    rates = {
        reviewer: {
            name: _rates([v for id, v in verdicts.items() if sample.subtasks[id] in subtasks])
            for name, subtasks in groups.items()
        }
        for reviewer, verdicts in files.items()
    }
    names = sorted(files)
    pairs = [(a, b) for number, a in enumerate(names) for b in names[number + 1 :]]
    agreement = {f"{a} and {b}": _agreement(files[a], files[b]) for a, b in pairs}
    return {"sample": len(sample.subtasks), "reviewers": rates, "agreement": agreement}


def _rates(verdicts: Sequence[Verdict]) -> dict[str, Rate]:
    judged = [verdict for verdict in verdicts if verdict.usable is not None]
    graded = [verdict for verdict in judged if verdict.quality]
    return {
        "usable": rate(sum(verdict.usable is True for verdict in judged), len(judged)),
        "high": rate(sum(verdict.quality == "high" for verdict in graded), len(graded)),
    }


def _agreement(
    first: Mapping[str, Verdict], second: Mapping[str, Verdict]
) -> dict[str, float | int | None]:
    both = [id for id in sorted(first) if id in second]
    both = [id for id in both if None not in (first[id].usable, second[id].usable)]
    graded = [id for id in both if first[id].quality and second[id].quality]
    usable = [[str(file[id].usable) for id in both] for file in (first, second)]
    quality = [[file[id].quality for id in graded] for file in (first, second)]
    return {
        "judged by both": len(both),
        "kappa usable": kappa(*usable),
        "graded by both": len(graded),
        "kappa quality": kappa(*quality),
    }


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as JSON holds it."""

    def values(each: Rate) -> dict[str, float]:
        return {"percent": each.percent, **asdict(each)}

    rates = {
        reviewer: {
            group: {name: values(each) for name, each in both.items()}
            for group, both in groups.items()
        }
        for reviewer, groups in facts["reviewers"].items()
    }
    return {**facts, "reviewers": rates}


def text(facts: Mapping[str, Any]) -> str:
    """The summary as lines; beside it what the paper has."""
    lines = [f"sample: {facts['sample']} records"]
    for reviewer, groups in facts["reviewers"].items():
        for name, both in groups.items():
            usable, high = both["usable"], both["high"]
            if usable.total:
                lines.append(
                    f"{reviewer}, {name.replace('_', ' ')}: usable {_shown(usable)}; "
                    f"of high quality {_shown(high)}"
                )
    for pair, values in facts["agreement"].items():
        told = ", ".join(
            f"{name} {'undefined' if value is None else round(value, 3)}"
            for name, value in values.items()
        )
        lines.append(f"{pair}: {told}")
    lines.append(
        f"the paper, one team, 5,000 records: usable {PAPER_USABLE} %, "
        f"of high quality {PAPER_HIGH} %"
    )
    return "\n".join(lines)


def _shown(each: Rate) -> str:
    if not each.total:
        return "not judged"
    return f"{each.percent:.2f} % ({each.low:.1f} to {each.high:.1f}, n = {each.total})"


def write_corrected(
    run: Path, folder: Path, files: Mapping[str, Mapping[str, Verdict]]
) -> tuple[int, list[str]]:
    """Write the records that were corrected in place, as `prepare` takes them.

    Of two corrections of one record that differ, neither is taken.

    Returns:
        How many were written, and what is wrong with others, one line each.
    """
    wanted: dict[str, set[tuple[str | None, str | None]]] = {}
    for verdicts in files.values():
        for id, verdict in verdicts.items():
            if verdict.text is not None or verdict.answer is not None:
                wanted.setdefault(id, set()).add((verdict.text, verdict.answer))
    problems = [f"{id}: corrected in two ways" for id in sorted(wanted) if len(wanted[id]) > 1]
    lines = []
    for kept, (new_text, new_answer) in _chosen(run, wanted):
        last = replace(kept.record.rounds[-1], text=new_text or kept.record.rounds[-1].text)
        corrected = replace(
            kept.record,
            rounds=(*kept.record.rounds[:-1], last),
            answer=new_answer or kept.record.answer,
        )
        is_choice = not corrected.choices or corrected.answer in corrected.choices
        reason = fault(corrected) if is_choice else "its answer is none of the choices"
        if reason:
            problems.append(f"{kept.trace.record}: {reason}")
        else:
            lines.append(record_line(corrected, (kept.scan,)))
    write_file(folder / CORRECTED, "".join(f"{line}\n" for line in lines).encode())
    return len(lines), problems


def _chosen(
    run: Path, wanted: Mapping[str, set[tuple[str | None, str | None]]]
) -> Iterator[tuple[Kept, tuple[str | None, str | None]]]:
    if not wanted:
        return
    for case in read_stored(run):
        for kept in case.records:
            found = wanted.get(kept.trace.record, set())
            if len(found) == 1:
                yield kept, next(iter(found))
