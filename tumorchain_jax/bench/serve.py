"""Questions to a served model: eight clients at once against one after the other."""

import queue
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.job import Answered, Event
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.store import Store
from tumorchain_jax.serve.refusal import Refusal

Texts: TypeAlias = list[str]
Ask: TypeAlias = Callable[..., Texts]
"""Asks a question by its number, streaming or not; returns the rounds of its answer."""
T = TypeVar("T")


CLIENTS, QUESTIONS, SEEDS = 8, 32, (1, 2)
TEXTS = (
    "Where is the tumour in this CT?",
    "Is there a lesion in the liver?",
    "Is the liver normal?",
)


def bench_serve() -> dict[str, float]:
    """Measure the answers a second of the queue and the slots.

    Returns:
        questions a second of `CLIENTS` at once, as a whole and token by token; of one after the
        other, on the same server and on one of a single slot; ratios, and the share of answers that
        are the same on both sides.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for seed in SEEDS:
            write_patient(make_patient(seed), root / str(seed))
        single_s, single = _with_server(root, 1, _one_by_one)

        def measure(ask: Ask) -> tuple[float, float, float, list[Texts], list[Texts]]:
            alone_s, alone = _one_by_one(ask)
            together_s, together = _at_once(ask)
            streamed_s, _ = _at_once(lambda number: ask(number, True))
            return alone_s, together_s, streamed_s, alone, together

        alone_s, together_s, streamed_s, alone, together = _with_server(root, CLIENTS, measure)
    same = sum(a == b == c for a, b, c in zip(single, alone, together, strict=True)) / QUESTIONS
    return {
        "one after the other, questions/s": QUESTIONS / alone_s,
        "one after the other, a server of one slot, questions/s": QUESTIONS / single_s,
        f"{CLIENTS} at once, questions/s": QUESTIONS / together_s,
        f"{CLIENTS} at once, token by token, questions/s": QUESTIONS / streamed_s,
        "speedup": alone_s / together_s,
        "speedup over a server of one slot": single_s / together_s,
        "same text, share": same,
    }


def _with_server(root: Path, slots: int, measure: Callable[[Ask], T]) -> T:
    """Measure with the questions of a server with so many slots."""
    limits = Limits()
    analyzer = Analyzer.load(batch_size=slots)
    store, desk = Store(root, 60.0, 0), Desk(analyzer, Cases(analyzer, limits), limits)
    pairs = [
        (store.in_root(f"{seed}/ct.nii.gz"), store.in_root(f"{seed}/labels.nii.gz"))
        for seed in SEEDS
    ]

    def ask(number: int, stream: bool = False) -> Texts:
        events: queue.Queue[Event] = queue.Queue()
        text = TEXTS[number % len(TEXTS)]
        desk.submit(*pairs[number % len(pairs)], text, 0, None, events.put, stream)
        while not isinstance(event := events.get(), Answered):
            if isinstance(event, Refusal):
                raise event
        return [each.text for each in event.report.rounds]

    try:
        desk.start()
        for number in range(len(pairs)):
            ask(number)  # reads the scans, which is no part of the measurement
        return measure(ask)
    finally:
        desk.stop()
        store.close()


def _one_by_one(ask: Ask) -> tuple[float, list[Texts]]:
    return _timed(lambda: [ask(number) for number in range(QUESTIONS)])


def _at_once(ask: Ask) -> tuple[float, list[Texts]]:
    with ThreadPoolExecutor(CLIENTS) as clients:
        return _timed(lambda: [*clients.map(ask, range(QUESTIONS))])


def _timed(work: Callable[[], list[Texts]]) -> tuple[float, list[Texts]]:
    started = time.perf_counter()
    made = work()
    return time.perf_counter() - started, made
