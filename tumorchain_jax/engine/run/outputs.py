"""The outputs of a run, written from what became of each case, a case at a time in memory."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_file, write_file
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.data.splits import split_patients, write_split
from tumorchain_jax.engine.run.card import Card
from tumorchain_jax.engine.run.store import (
    OUTPUTS,
    Head,
    Lines,
    read_lines,
    read_places,
    shard_path,
)

PAPER_SHARES = {
    "lesion_attributes": 0.6001,
    "cot_report": 0.1871,
    "position": 0.1103,
    "tnm_prediction": 0.1025,
}
"""Shares of the tasks in the paper's 1,497,818 pairs (Fig. 2)."""
CARD, SPLIT, SUMS = "README.md", "split.json", "SHA256SUMS"
FILES = (*(f"{name}.jsonl" for name in OUTPUTS), SPLIT, CARD)
"""All files of a complete run, but for their checksums."""

Wanted = Mapping[str, Mapping[str, str]]
"""Shard -> case -> digest, of the cases that a run is about."""


def write_outputs(
    folder: Path, wanted: Wanted, settings: Mapping[str, Any], mix: str
) -> dict[str, int]:
    """Write all files of a run.

    Args:
        settings: of the run, for the card.

    Returns:
        Counts: `records`, `left_out`, `thinned`, `rejected`, `failed`.

    Raises:
        InputError: the paper's mix cannot be had, as a task has no records.
        OSError: the disk is full.
    """
    thinned = _thinned(folder, wanted) if mix == "paper" else {}
    counts: Counter[str] = Counter(dict.fromkeys(("records", "left_out", "rejected", "failed"), 0))
    counts["thinned"] = sum(map(len, thinned.values()))
    card = Card(settings, mix)
    patients: set[str] = set()
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(atomic_file(folder / f"{name}.jsonl")) for name in OUTPUTS
        }
        for head, lines in read_wanted(folder, wanted):
            kept = _keep(head, lines, thinned.get(head.case, frozenset()))
            for name, file in files.items():
                file.writelines(f"{line}\n".encode() for line in kept.get(name, ()))
            patients.update(card.add(head, kept))
            counts["records"] += len(kept.get("records", ()))
            counts["left_out"] += sum(head.left_out.values())
            counts["rejected"] += sum(head.rejected.values())
            counts["failed"] += bool(head.error)
    split = split_patients(patients)
    write_split(folder, split)
    write_file(folder / CARD, card.text(split, counts["thinned"]).encode())
    sums = "".join(f"{sha256_of(folder / name)}  {name}\n" for name in FILES)
    write_file(folder / SUMS, sums.encode())
    return dict(counts)


def read_wanted(folder: Path, wanted: Wanted) -> Iterator[tuple[Head, Lines]]:
    """Yield what became of each case, in the order of shards and ids.

    Raises:
        InputError: a case is missing, as its file was changed in the meantime.
    """
    for shard in sorted(wanted):
        path = shard_path(folder, shard)
        places = {place.head.case: place for place in read_places(path)}
        for case in sorted(wanted[shard]):
            if case not in places or places[case].head.digest != wanted[shard][case]:
                expected, hint = "what became of it", "rerun the same command"
                raise InputError(path, "cases", f"nothing of {case}", expected, hint)
            yield places[case].head, read_lines(path, places[case])


def sha256_of(path: Path) -> str:
    """Hash a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(head: Head, lines: Lines, thinned: Collection[str]) -> Lines:
    """The lines of a case without the records, and their traces, that were thinned out."""
    if not thinned:
        return lines
    kept = [number for number, (_, id) in enumerate(head.records) if id not in thinned]
    pick = {name: [lines[name][number] for number in kept] for name in ("records", "traces")}
    return {**lines, **pick}


def _thinned(folder: Path, wanted: Wanted) -> dict[str, set[str]]:
    """Choose the records to leave out, so that the tasks have the paper's shares.

    Of each task those stay whose ids are smallest; ids are hashes, so that is a random choice which
    a case added later changes for as many records as it brings, and no order of the work does.
    """
    ids: dict[str, list[tuple[int, str, str]]] = {task: [] for task in PAPER_SHARES}
    for shard in wanted:
        heads = {place.head.case: place.head for place in read_places(shard_path(folder, shard))}
        for case in wanted[shard]:
            for subtask, id in heads[case].records:
                ids[TASK_OF[subtask]].append((int(id, 16), case, id))
    empty = [task for task, found in ids.items() if not found]
    if empty:
        found, expected = f"no record of {', '.join(empty)}", "records of all four tasks"
        hint = "use --mix natural; nothing is worked on again"
        raise InputError(folder, "--mix paper", found, expected, hint)
    total = min(len(ids[task]) / share for task, share in PAPER_SHARES.items())
    thinned: dict[str, set[str]] = {}
    for task, share in PAPER_SHARES.items():
        order = np.argsort(np.array([each[0] for each in ids[task]], np.uint64), kind="stable")
        for number in order[round(total * share) :]:
            _, case, id = ids[task][number]
            thinned.setdefault(case, set()).add(id)
    return thinned
