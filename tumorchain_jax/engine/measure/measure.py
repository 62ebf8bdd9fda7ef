"""The engine measured on reports of known truth (`tumorchain engine score`).

Patients are drawn, reported by every writer in turn and read by the rules; no file is written.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.measure.agents import (
    FaultCounts,
    RecordCounts,
    judge_records,
    plant_faults,
)
from tumorchain_jax.engine.measure.cases import case_of
from tumorchain_jax.engine.measure.identifiers import identifiers_found
from tumorchain_jax.engine.measure.matching import Comparison, compare
from tumorchain_jax.engine.measure.twins import TwinResult, read_twins
from tumorchain_jax.phantoms.reports.cases import make_case, styles_named
from tumorchain_jax.phantoms.reports.styles import STYLES
from tumorchain_jax.phantoms.reports.twins import KINDS

FIRST_SEED = 1_000_000
"""Patients from here on are for measuring alone."""
BATCH = 20
TWINS_SHARE = 10
"""Twins are read of every tenth patient, for there are 16 of each."""
LONG = "1 MB of text"
"""This twin is read of the first patient alone: it takes many seconds."""


@dataclass(frozen=True)
class Measured:
    """What came of one patient.

    Attributes:
        style: of the writer.
        read: facts against the truth.
        records: of the agents against the truth.
        faults: planted in the chains of the patient's true facts.
        identifiers: found, planted, and how many characters too many were replaced; of every
            tenth patient too.
        twins: of every tenth patient.
        seconds: of a core, to make the records of the case.
    """

    style: str
    read: Comparison
    records: RecordCounts
    faults: FaultCounts
    identifiers: tuple[Counter[str], Counter[str], int]
    twins: tuple[TwinResult, ...]
    seconds: float


def measure_patient(seed: int, style: str, twins: tuple[str, ...] = ()) -> Measured:
    """Measure the engine on one patient by one writer, and on the twins of these kinds."""
    writer = STYLES[style]
    report = make_case(seed, writer)
    case = case_of(report)
    start = time.process_time()
    result = process(case)
    seconds = time.process_time() - start
    read = compare(result.facts, report.statements)
    return Measured(
        style,
        read,
        judge_records(result, read),
        plant_faults(case, report.statements, seed),
        identifiers_found(make_case(seed, writer, identifiers=True))
        if twins
        else (Counter(), Counter(), 0),
        tuple(read_twins(seed, writer, twins)) if twins else (),
        seconds,
    )


def measure(
    patients: int, seed: int = FIRST_SEED, styles: Sequence[str] = (), workers: int | None = None
) -> list[Measured]:
    """Measure the engine by rules on new patients, by the writers in turn.

    Args:
        patients: how many; each is reported by one writer.
        seed: of the first.
        styles: names of writers; none: all of them.
        workers: processes; None: one for each core.

    Raises:
        InputError: there is no such style.
    """
    names = [style.name for style in styles_named(styles)]
    tasks = [
        (seed + number, names[number % len(names)], _twins_of(number, number // len(names)))
        for number in range(patients)
    ]
    batches = [tasks[at : at + BATCH] for at in range(0, len(tasks), BATCH)]
    measured: list[Measured] = []
    with local_workers(workers) as pool, tqdm(total=patients, desc="measured", disable=None) as bar:
        for batch in pool.map(_batch, batches):
            measured += batch
            bar.update(len(batch))
    return measured


def _twins_of(number: int, turn: int) -> tuple[str, ...]:
    """Choose the twins of a patient: none, unless its writer's turn is a tenth one."""
    if turn % TWINS_SHARE:
        return ()
    return tuple(kind for kind in KINDS if kind != LONG or not number)


def _batch(tasks: Iterable[tuple[int, str, tuple[str, ...]]]) -> list[Measured]:
    return [measure_patient(*task) for task in tasks]
