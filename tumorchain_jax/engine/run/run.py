"""Cases -> records, facts and traces in a folder, resumably.

    DIR/NAME.jsonl                   the outputs (`store.OUTPUTS`), written when all cases are done
    DIR/README.md, DIR/split.json    the data set's card; which patients train and which test
    DIR/SHA256SUMS                   of all these; written last, so what lacks it is incomplete
    DIR/.engine/run.json             how the cases are worked on, and how many there are
    DIR/.engine/cases/SHARD.frames   what became of each case (`store.py`)

The bytes of the outputs depend on the cases and the settings alone: not on the order of the list,
the number of workers, or how often the run was stopped.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.core.files import locked, remove_partial_files, write_file
from tumorchain_jax.engine.cases import ListedCase
from tumorchain_jax.engine.run import progress
from tumorchain_jax.engine.run.outputs import write_outputs
from tumorchain_jax.engine.run.store import shard_of, shard_path
from tumorchain_jax.engine.run.work import (
    Prepare,
    Process,
    as_it_is,
    drain,
    end_draining,
    work_shard,
)

FORMAT = 1


@dataclass(frozen=True)
class Done:
    """Counts of a run that is complete.

    Attributes:
        cases: in the list.
        already_done: of these, by earlier runs.
        records: in `records.jsonl`.
        left_out: records that repeat another, tell their answer or cannot be judged.
        thinned: records left out for the paper's mix of tasks.
        rejected: chains set aside.
        failed: cases of which nothing came.
        warnings: one line each.
    """

    cases: int
    already_done: int
    records: int
    left_out: int
    thinned: int
    rejected: int
    failed: int
    warnings: tuple[str, ...] = ()


def run(
    folder: Path,
    cases: Sequence[ListedCase],
    process: Process,
    settings: Mapping[str, Any],
    workers: Executor,
    prepare: Prepare = as_it_is,
    mix: str = "natural",
    retry: bool = False,
    note: Callable[[], str] = str,
) -> Done:
    """Work on all cases that are not done yet, then write the outputs.

    Args:
        process: the agents; workers get it by pickle.
        settings: all that the agents' work depends on, as JSON; a folder is of one kind alone.
        workers: all of them, and this process, must see the same files under the same paths.
        prepare: what is done with a case before the agents see it.
        mix: of tasks, `natural` or `paper`.
        retry: work again on cases of which something was set aside.
        note: what the progress tells beside the counts.

    Raises:
        InputError: the folder holds something else, another process is at work on it, it cannot be
            written, or what the agents need is not there.
        Stopped: by SIGTERM or Ctrl-C, after the cases in work were done.
    """
    shards: dict[str, list[ListedCase]] = {}
    for case in cases:
        shards.setdefault(shard_of(case.id), []).append(case)
    wanted = {shard: {case.id: case.digest for case in part} for shard, part in shards.items()}
    try:
        _claim(folder, settings)
        with locked(folder / ".engine" / "lock", folder):
            _begin(folder, settings, len(cases))
            count = progress.Counter(folder, wanted)
            already = 0 if retry else count()
            with progress.shown(len(cases), count, note), _drained_by_signals(folder) as signals:
                warnings = _work(folder, shards, workers, (process, prepare, retry))
            if signals:
                raise Stopped(f"after {count()} of {len(cases)} cases")
            counts = write_outputs(folder, wanted, settings, mix)
    except OSError as error:
        hint = "free some space or choose another folder, then rerun the same command"
        found = f"{error.strerror or error}"
        raise InputError(folder, "output", found, "a place to write to", hint) from error
    return Done(len(cases), already, warnings=warnings, **counts)


def _work(
    folder: Path,
    shards: Mapping[str, Sequence[ListedCase]],
    workers: Executor,
    how: tuple[Process, Prepare, bool],
) -> tuple[str, ...]:
    """Work on all shards; the first error ends the others after their case.

    Args:
        how: process, prepare and retry of `work_shard`.

    Returns:
        Warnings.
    """
    here = folder.absolute()
    tasks = []
    for shard, cases in shards.items():
        tasks.append(workers.submit(work_shard, here, shard, cases, *how))
        if tasks[-1].done() and tasks[-1].exception() is not None:
            break
    done, others = wait(tasks, return_when=FIRST_EXCEPTION)
    errors = [error for task in tasks if task in done and (error := task.exception())]
    if errors:
        drain(folder)
        for task in others:
            task.cancel()
        wait(others)
        if isinstance(errors[0], BrokenProcessPool):
            raise RuntimeError("a worker was killed, by the system or for its memory; rerun")
        raise errors[0]
    for shard in shards:
        if not shard_path(folder, shard).is_file():
            expected, hint = "a folder that all workers share", "put it on shared storage"
            raise InputError(folder, "output", f"no {shard} of a worker", expected, hint)
    return tuple(warning for task in tasks if (warning := task.result()))


def _claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a folder of something else, or of another kind of run."""
    check_output(folder)
    if (folder / ".engine" / "run.json").is_file():
        found, hint = read_run(folder), "name another folder"
        wanted = {"format": FORMAT, "settings": dict(settings)}
        for name, value in _flat(wanted).items():
            earlier = _flat(found).get(name)
            if earlier != value:
                expected = f"{earlier!r}, as the run in this folder has it"
                raise InputError(folder, name.split(".", 1)[-1], repr(value), expected, hint)
    (folder / ".engine" / "cases").mkdir(parents=True, exist_ok=True)


def check_output(folder: Path) -> None:
    """Refuse a folder of something else.

    Raises:
        InputError: it is one.
    """
    if (folder / ".engine" / "run.json").is_file() or not folder.exists():
        return
    if not folder.is_dir() or {*folder.iterdir()} - {folder / ".engine"}:
        expected = "a new folder, or one that `engine run` has begun"
        raise InputError(folder, "output", "something else", expected, "name another folder")


def _begin(folder: Path, settings: Mapping[str, Any], cases: int) -> None:
    facts = {"format": FORMAT, "settings": dict(settings), "cases": cases}
    content = json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_file(folder / ".engine" / "run.json", content.encode())
    end_draining(folder)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    for place in (folder, folder / ".engine"):
        remove_partial_files(place)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_object = isinstance(value, Mapping)
        flat |= _flat(value, f"{before}{name}.") if is_object else {f"{before}{name}": value}
    return flat


def read_run(folder: Path) -> dict[str, Any]:
    """Read what a folder's run is about: `format`, `settings`, `cases`.

    Raises:
        InputError: the folder is none of a run.
    """
    path = folder / ".engine" / "run.json"
    try:
        values = json.loads(path.read_bytes())
        if values["format"] != FORMAT:
            found = f"format {values['format']}"
            raise InputError(folder, "run", found, f"format {FORMAT}", "make the run again")
        return values
    except FileNotFoundError as error:
        expected = "a folder that `tumorchain engine run` wrote"
        raise InputError(folder, "run", "none", expected, "check the path") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(path, "run", str(error), "a run's facts", "make the run again") from error


@contextmanager
def _drained_by_signals(folder: Path) -> Iterator[list[int]]:
    """Let SIGTERM and Ctrl-C end the work after the cases at hand; yields the signals that came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, _: object) -> None:
        came.append(number)
        drain(folder)
        if len(came) > 1:  # whoever asks twice does not want to wait
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
