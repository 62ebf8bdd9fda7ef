"""`tumorchain judge`: judge the chains of saved items, score, write.

.NAME.judged.jsonl     beside the output folder NAME: the run in the first line, then a line for
                       each chain that was judged so far; the same command goes on behind it
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.chain.bars import Calibration
from tumorchain_jax.evaluation.chain.judged import (
    Judged,
    case_of,
    judged,
    judged_of,
    read_judged,
    to_lines,
)
from tumorchain_jax.evaluation.chain.page import results_page
from tumorchain_jax.evaluation.chain.score import score
from tumorchain_jax.evaluation.chain.text import score_text
from tumorchain_jax.evaluation.chain.verdict import Case, Judge
from tumorchain_jax.evaluation.items import Item, read_items
from tumorchain_jax.report.folder import check_folder, write_folder

ROWS, SCORE, PAGE, CALIBRATION = "judged.jsonl", "score.json", "results.html", "calibration.json"


def judge_items(
    path: Path,
    output: Path | None,
    judge: Judge,
    calibration: Mapping[str, Any] | None = None,
    subject: str = "",
) -> tuple[dict[str, Any], str]:
    """Judge a file of items, and write what came of it.

    Args:
        output: new folder; None: nothing is written, and nothing can be resumed.
        calibration: of this judge, as `calibration_values`.
        subject: the model that wrote the chains, for the record.

    Returns:
        the scores as plain values, and as text.

    Raises:
        InputError: the items cannot be judged, the folder not be written, or the calibration is of
            another judge.
    """
    if output:
        check_folder(output, overwrite=False)
    if calibration and calibration["judge"] != judge.name:
        found, hint = calibration["judge"], "calibrate this judge: `tumorchain judge calibrate`"
        raise InputError("calibration", "judge", found, judge.name, hint)
    items = read_items(path)
    if not items:
        raise InputError(path, "items", "none", "one or more", "evaluate first")
    cases = [case_of(item, f"{path}:{number}") for number, item in enumerate(items, 1)]
    run = {
        "judge": judge.name,
        "version": __version__,
        "items": hashlib.sha256(path.read_bytes()).hexdigest(),
        "subject": subject,
    }
    kept = output.with_name(f".{output.name}.judged.jsonl") if output else None
    rows = _begin(kept, run) if kept else []
    for row in tqdm(
        _judge_rest(judge, items[len(rows) :], cases[len(rows) :]),
        "chains", len(items), initial=len(rows), disable=None,
    ):  # fmt: skip
        rows.append(row)
        if kept:
            _append(kept, row.to_line())
    values = score(rows, {**run, "calibration": dict(calibration) if calibration else None})
    text = f"{score_text(values)}\n{NOTICE}\n"
    if output:
        files = {
            ROWS: to_lines(rows),
            SCORE: json.dumps(values, indent=1) + "\n",
            "score.txt": text,
            PAGE: results_page(values, rows, items),
        }
        if calibration:
            files[CALIBRATION] = json.dumps(calibration, indent=1) + "\n"
        write_folder(output, files, overwrite=False)
        if kept:
            kept.unlink()
    return values, text


def rescore(folder: Path) -> tuple[dict[str, Any], str]:
    """Score the judged chains of a folder again, without a judge.

    Raises:
        InputError: it is no folder of `tumorchain judge`.
    """
    hint = "name a folder that `tumorchain judge -o` wrote"
    kept = read_json(folder / SCORE, hint)
    run = kept.get("run")
    if not isinstance(run, dict):
        raise InputError(folder / SCORE, "run", repr(run), "an object", "judge again")
    rows = read_judged(folder / ROWS)
    if len(rows) != kept.get("asked"):
        expected = f"{kept.get('asked')}, as {SCORE} says"
        raise InputError(folder / ROWS, "chains", str(len(rows)), expected, "judge again")
    values = score(rows, run)
    return values, f"{score_text(values)}\n{NOTICE}\n"


def _judge_rest(judge: Judge, items: Sequence[Item], cases: Sequence[Case]) -> Iterator[Judged]:
    """Judge in order; where a judge takes several at once, a row waits for those before it."""
    if judge.workers == 1:
        for item, case in zip(items, cases, strict=True):
            yield judged(item, case, judge.judge(case))
        return
    with ThreadPoolExecutor(judge.workers) as pool:
        try:
            verdicts = pool.map(judge.judge, cases)
            for item, case, verdict in zip(items, cases, verdicts, strict=True):
                yield judged(item, case, verdict)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(path: Path, run: Mapping[str, str]) -> list[Judged]:
    """Read the rows so far, or start the file."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        _append(path, json.dumps(run) + "\n")
        return []
    # A stop in the middle of a line leaves it without its end: that chain is judged again.
    whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
    os.truncate(path, len(whole))
    first, *lines = whole.splitlines()
    try:
        found = dict(json.loads(first))
    except (ValueError, TypeError) as error:
        raise InputError(path, "run", repr(str(error)), "a line of JSON", _HINT) from error
    for name, value in run.items():
        if found.get(name) != value:
            raise InputError(path, name, str(found.get(name)), value, _HINT)
    return [judged_of(line, f"{path}[{number}]") for number, line in enumerate(lines, 2)]


_HINT = "remove the file, or choose another folder"


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def calibration_values(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as plain values, which travel with the scores of its judge."""
    return json.loads(json.dumps(asdict(calibration) | {"passed": calibration.passed}))


def read_calibration(path: Path) -> dict[str, Any]:
    """Read the file of a calibration.

    Raises:
        InputError: it is none.
    """
    values = read_json(path, "take the file of `tumorchain judge calibrate -o`")
    names = {"judge", "rows", "binary", "phantoms", "passed"}
    if missing := names - set(values):
        found = f"no {', '.join(sorted(missing))}"
        raise InputError(path, "calibration", found, "a file of `tumorchain judge calibrate`",
                         "calibrate first")  # fmt: skip
    return values
