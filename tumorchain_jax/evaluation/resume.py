"""Saved answers of an unfinished evaluation, so that the same command resumes it.

.NAME.answers.jsonl    beside the output folder NAME: checkpoint and patients in the first
                       line, then a line for each patient, a list of items
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax import __version__
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ask import ask_each
from tumorchain_jax.evaluation.items import Item, item_of
from tumorchain_jax.evaluation.patients import Patients
from tumorchain_jax.inference.analyzer import Analyzer


def answers_path(output: Path) -> Path:
    """Path of the saved answers of an unfinished evaluation into the folder `output`."""
    return output.with_name(f".{output.name}.answers.jsonl")


def ask_all(analyzer: Analyzer, patients: Patients, path: Path | None) -> list[list[Item]]:
    """Return the items of each patient; with a `path`, saved answers are not asked again.

    Raises:
        InputError: the saved answers are of another checkpoint or of other patients.
    """
    run = {
        "version": __version__,
        "checkpoint": analyzer.checkpoint.sha256,
        "patients": patients.source,
    }
    items = [] if path is None else _begin(path, run)
    done = len(items)
    before = patients[done - 1][0] if done else None
    rest = (patients[number] for number in range(done, len(patients)))
    new = ask_each(analyzer, rest, before=before, domain=patients.domain)
    for asked in tqdm(new, "patients", len(patients), initial=done, disable=None):
        tumour_mm = patients.tumour_mm(len(items))
        of_patient = [replace(item, tumour_mm=tumour_mm) for item in asked]
        items.append(of_patient)
        if path is not None:
            _append(path, [item.values() for item in of_patient])
    return items


def _begin(path: Path, run: dict[str, str]) -> list[list[Item]]:
    """Read the saved answers at `path`, or start the file."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        _append(path, run)
        return []
    # A stop in the middle of a line leaves it without its end: that patient is asked again.
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
    os.truncate(path, len(whole))
    first, *lines = whole.splitlines()
    hint = "remove the file, or choose another folder"
    try:
        found = dict(json.loads(first))
    except (ValueError, TypeError) as error:
        raise InputError(path, "run", repr(str(error)), "a line of JSON", hint) from error
    for name, value in run.items():
        if found.get(name) != value:
            raise InputError(path, name, str(found.get(name)), value, hint)
    return [_items(line, f"{path}[{number}]") for number, line in enumerate(lines, 2)]


def _items(line: bytes, source: str) -> list[Item]:
    try:
        values = list(json.loads(line))
    except (ValueError, TypeError) as error:
        expected, hint = "a list of items", "remove the file"
        raise InputError(source, "items", repr(str(error)), expected, hint) from error
    return [item_of(item, source) for item in values]


def _append(path: Path, value: dict[str, str] | Sequence[dict[str, object]]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(value) + "\n")
        file.flush()
        os.fsync(file.fileno())
