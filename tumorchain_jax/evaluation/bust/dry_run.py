"""Made-up files of a study's readers and its arbiter, for a dry run of everything behind them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.bust.adjudicate import disputes_of
from tumorchain_jax.evaluation.bust.simulate import ERRORS, simulated_reader, true_readings
from tumorchain_jax.evaluation.bust.study import Reading, Study, file_json, read_study
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import lexicon_with

BEGUN_MS = 1_700_000_000_000
"""Time of the first made-up reading."""


def write_files(cases: Path, folder: Path, seed: int) -> Iterator[Path]:
    """Write the readers' files, then the arbiter's, who knows the truth; yields their paths.

    Raises:
        InputError: the cases are not those of the study.
    """
    study = read_study(folder)
    lexicon = lexicon_with(study.lexicon, folder)
    labels = {row.id: row.label for row in read_manifest(cases)}
    if sorted(labels) != sorted(study.cases):
        raise InputError(cases, "cases", "others", "those of the study", "name its folder")
    truth = true_readings(labels, lexicon, seed)
    readers = {
        reader: simulated_reader(truth, lexicon, ERRORS[number % len(ERRORS)], seed + number + 1)
        for number, reader in enumerate(study.readers)
    }
    for reader, readings in readers.items():
        yield _write(folder, study, reader, readings)
    decided: dict[str, dict[str, Any]] = {}
    for case, dispute in disputes_of(study, lexicon, readers).items():
        decided[case] = {
            name: truth[case][name] for name in dispute["disputed"] if name in truth[case]
        }
    yield _write(folder, study, study.arbiter, decided)


def _write(folder: Path, study: Study, reader: str, readings: Mapping[str, Reading]) -> Path:
    timed = {
        case: {**reading, "at": BEGUN_MS + 60_000 * number}
        for number, (case, reading) in enumerate(readings.items())
    }
    path = folder / f"readings-{reader}.json"
    write_file(path, file_json(study, reader, timed))
    return path
