"""Questions to a served model: eight clients at once against one after the other."""

import queue
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Answered, Desk, Event
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.store import Store
from tumorchain_jax.serve.refusal import Refusal

CLIENTS, QUESTIONS, SEEDS = 8, 32, (1, 2)
TEXTS = (
    "Where is the tumour in this CT?",
    "Is there a lesion in the liver?",
    "Is the liver normal?",
)


def bench_serve() -> dict[str, float]:
    """Measure the answers a second of the queue and the slots; both sides use the same server.

    Returns:
        questions a second of one client at a time and of `CLIENTS`, their ratio, and the share of
        answers that are the same.
    """
    analyzer = Analyzer.load(batch_size=CLIENTS)
    limits = Limits()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for seed in SEEDS:
            write_patient(make_patient(seed), root / str(seed))
        store, desk = Store(root, 60.0, 0), Desk(analyzer, Cases(analyzer, limits), limits)
        try:
            desk.start()
            return _measured(desk, store)
        finally:
            desk.stop()
            store.close()


def _measured(desk: Desk, store: Store) -> dict[str, float]:
    pairs = [
        (store.in_root(f"{seed}/ct.nii.gz"), store.in_root(f"{seed}/labels.nii.gz"))
        for seed in SEEDS
    ]

    def ask(number: int) -> list[str]:
        events: queue.Queue[Event] = queue.Queue()
        text = TEXTS[number % len(TEXTS)]
        desk.submit(*pairs[number % len(pairs)], text, 0, None, events.put)
        while not isinstance(event := events.get(), Answered):
            if isinstance(event, Refusal):
                raise event
        return [each.text for each in event.report.rounds]

    numbers = range(QUESTIONS)
    for number in range(len(pairs)):
        ask(number)  # reads the scans, which is no part of the measurement
    alone_s, alone = _timed(lambda: [ask(number) for number in numbers])
    with ThreadPoolExecutor(CLIENTS) as clients:
        together_s, together = _timed(lambda: [*clients.map(ask, numbers)])
    same = sum(a == b for a, b in zip(alone, together, strict=True)) / QUESTIONS
    return {
        "one after the other, questions/s": QUESTIONS / alone_s,
        f"{CLIENTS} at once, questions/s": QUESTIONS / together_s,
        "speedup": alone_s / together_s,
        "same text, share": same,
    }


def _timed(work: Callable[[], list[list[str]]]) -> tuple[float, list[list[str]]]:
    started = time.perf_counter()
    made = work()
    return time.perf_counter() - started, made
