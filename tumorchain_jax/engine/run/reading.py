"""A complete run, read back case by case; all its files name the cases in the same order."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.case import Claim, Review, Step, Trace
from tumorchain_jax.engine.facts import Fact, Source
from tumorchain_jax.engine.run.outputs import SUMS

_CHANGED = "rerun `tumorchain engine run`, which writes the outputs again"


@dataclass(frozen=True)
class Kept:
    """A record with what it rests on.

    Attributes:
        line: of `records.jsonl`, which the record's id is the hash of.
        record: the same, its scan as number 0.
        scan: its scan's name.
        trace: of `traces.jsonl`.
    """

    line: str
    record: Record
    scan: str
    trace: Trace


@dataclass(frozen=True)
class StoredCase:
    """What the outputs hold of a case.

    Attributes:
        id: of the case.
        documents: sha256 -> fields of `documents.jsonl`.
        facts: id as written -> fact.
        records: in the order of the file.
    """

    id: str
    documents: dict[str, dict[str, Any]]
    facts: dict[str, Fact]
    records: tuple[Kept, ...]


def check_complete(folder: Path) -> None:
    """Refuse a run whose outputs are not there yet.

    Raises:
        InputError: they are not.
    """
    if not (folder / SUMS).is_file():
        expected = "the outputs of a run that is complete"
        hint = "run `tumorchain engine run` to its end"
        raise InputError(folder, SUMS, "none", expected, hint)


def read_stored(folder: Path) -> Iterator[StoredCase]:
    """Yield the cases of a run, one at a time in memory.

    Raises:
        InputError: the outputs are not complete, or a line is not as the run wrote it.
    """
    check_complete(folder)
    facts = _Groups(folder / "facts.jsonl")
    traces = _Groups(folder / "traces.jsonl")
    with (folder / "records.jsonl").open(encoding="utf-8", newline="\n") as lines:
        for case, documents in groupby(_rows(folder / "documents.jsonl"), lambda row: row["case"]):
            try:
                found = {row["sha256"]: row for row in documents}
                known = {row.pop("id"): _fact(row) for row in facts.of(case)}
                kept = [_kept(next(lines), row) for row in traces.of(case)]
            except StopIteration as error:
                expected = "a record for each trace"
                raise InputError(
                    folder / "records.jsonl", case, "too few lines", expected, _CHANGED
                ) from error
            except (TypeError, KeyError, ValueError) as error:
                raise InputError(
                    folder, f"case {case}", str(error)[:200], "lines as they were written", _CHANGED
                ) from error
            yield StoredCase(case, found, known, tuple(kept))
        rest = [name for name, left in (("facts", facts.left), ("traces", traces.left)) if left]
        rest += ["records"] if next(lines, "") else []
        if rest:
            found_, expected = "lines of no case", "the order of documents.jsonl"
            raise InputError(folder, f"{rest[0]}.jsonl", found_, expected, _CHANGED)


def find(folder: Path, id: str) -> tuple[StoredCase, Kept]:
    """Find a record by the beginning of its id; the first of a run where that is empty.

    Raises:
        InputError: there is none, or there are several, or as `read_stored`.
    """
    every = ((case, kept) for case in read_stored(folder) for kept in case.records)
    found = list(islice(every, 1)) if not id else [
        (case, kept) for case, kept in every if kept.trace.record.startswith(id)
    ]  # fmt: skip
    if len(found) != 1:
        hint = "ids are the field `record` in traces.jsonl"
        raise InputError(folder, f"record {id}", f"{len(found)} of them", "one", hint)
    return found[0]


class _Groups:
    """Rows of a file, handed out case by case.

    Attributes:
        left: whether there are rows that were not asked for.
    """

    def __init__(self, path: Path):
        self._rows = _rows(path)
        self._next = next(self._rows, None)

    @property
    def left(self) -> bool:
        return self._next is not None

    def of(self, case: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a case, if they come next."""
        while self._next is not None and self._next["case"] == case:
            row, self._next = self._next, next(self._rows, None)
            yield row


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open("rb") as file:
            for line in file:
                number += 1
                row = json.loads(line)
                row["case"]  # all have it
                yield row
    except OSError as error:
        raise InputError(path, "path", f"{error.strerror}", "a file of a run", _CHANGED) from error
    except (ValueError, TypeError, KeyError) as error:
        where = f"{path}:{number}"
        raise InputError(where, "JSON", str(error)[:200], "a line of a run", _CHANGED) from error


def _kept(line: str, row: dict[str, Any]) -> Kept:
    line = line.removesuffix("\n")
    values = json.loads(line)
    record = Record.from_values(values | {"scan": 0}, "records.jsonl")
    steps = tuple(
        Step(
            step["level"],
            step["text"],
            tuple(
                Claim(
                    claim["subject"],
                    claim["relation"],
                    claim["object"],
                    tuple(claim["facts"]),
                    tuple(claim["edges"]),
                )
                for claim in step["claims"]
            ),
        )
        for step in row["steps"]
    )
    trace = Trace(
        row["record"],
        row["case"],
        row["form"],
        steps,
        tuple(row["answer_facts"]),
        tuple(row["answer_edges"]),
        tuple(Review(**review) for review in row["reviews"]),
        tuple((agent, backend) for agent, backend in row["agents"]),
        row["graph"],
    )
    return Kept(line, record, values["scan"], trace)


def _fact(row: dict[str, Any]) -> Fact:
    return Fact(**{**row, "source": Source(**row["source"])})
