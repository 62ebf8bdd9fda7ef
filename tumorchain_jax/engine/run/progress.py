"""How far a run is: a bar at a terminal, a line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.engine.run.store import read_places, shard_path

EVERY = 30.0
"""Seconds between two lines where there is no terminal."""


class Counter:
    """Counts the wanted cases that are stored, and reads nothing twice.

    Args:
        wanted: shard -> digest of each case.
    """

    def __init__(self, folder: Path, wanted: Mapping[str, Mapping[str, str]]):
        self._paths = {shard_path(folder, shard): cases for shard, cases in wanted.items()}
        self._sizes: dict[Path, int] = {}
        self._done: dict[Path, int] = {}

    def __call__(self) -> int:
        """Count them now."""
        for path, cases in self._paths.items():
            size = path.stat().st_size if path.exists() else 0
            if self._sizes.get(path) != size:
                self._sizes[path] = size
                heads = {place.head.case: place.head.digest for place in read_places(path)}
                self._done[path] = sum(heads.get(case) == cases[case] for case in cases)
        return sum(self._done.values())


@contextmanager
def shown(total: int, count: Callable[[], int], note: Callable[[], str]) -> Iterator[None]:
    """Show how many cases are done, the rate and the time that is left, while a run is at work.

    Args:
        count: counts the cases that are done.
        note: what else to tell, such as the cost; may be empty.
    """
    ended = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=show, args=(total, count, note, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bar(
    total: int, count: Callable[[], int], note: Callable[[], str], ended: threading.Event
) -> None:
    with tqdm(desc="cases", total=total, initial=count(), unit="case") as bar:
        while not ended.wait(1.0):
            bar.set_postfix_str(note(), refresh=False)
            bar.update(count() - bar.n)
        bar.update(count() - bar.n)


def _lines(
    total: int, count: Callable[[], int], note: Callable[[], str], ended: threading.Event
) -> None:
    first, began = count(), time.monotonic()
    while not ended.wait(EVERY):
        done, seconds = count(), time.monotonic() - began
        rate = (done - first) / seconds
        left = f"{(total - done) / rate / 60:.0f} min left" if rate else "no rate yet"
        more = f", {note()}" if note() else ""
        line = f"cases: {done} of {total}, {rate:.1f} a second, {left}{more}"
        print(line, file=sys.stderr, flush=True)
