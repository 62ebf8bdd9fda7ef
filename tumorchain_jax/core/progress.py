"""Progress of long work: a bar at a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

SECONDS = 30.0
"""Between two lines where there is no terminal for a bar."""
T = TypeVar("T")


def progress(items: Iterable[T], total: int, name: str, unit: str) -> Iterator[T]:
    """Pass on `items` and show on stderr how many of the `total` are done.

    Without a terminal this is a line at the start, one every `SECONDS`, and one at the end of work
    that took longer, so that a log shows that something happens.
    """
    with tqdm(items, name, total, unit=f" {unit}", disable=None) as bar:
        if not bar.disable:
            yield from bar
            return
        shown = time.monotonic()
        if total:
            _say(f"{name}: 0 of {total} {unit}")
        late = False
        for done, item in enumerate(bar, start=1):
            yield item
            if time.monotonic() - shown > SECONDS or (late and done == total):
                _say(f"{name}: {done} of {total} {unit}")
                shown, late = time.monotonic(), True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
