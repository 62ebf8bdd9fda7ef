"""Benchmark of making and preprocessing digital patients of both kinds."""

import time
from collections.abc import Callable
from typing import Any

from tumorchain_jax.models.tumorchain.model import NANO
from tumorchain_jax.phantoms.dataset import model_scan
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.phantoms.settings import REALISTIC, PatientSettings
from tumorchain_jax.scan.preprocess import PreprocessConfig, preprocess

FIRST_SEED = 7_000_000
REALISTIC_PATIENTS = PatientSettings(REALISTIC)


def bench_data(patients: int = 16) -> dict[str, float]:
    """Measure volumes a second on one core (CPU time, so other processes do not matter)."""
    config = PreprocessConfig(NANO.encoder.image)
    seeds = range(FIRST_SEED, FIRST_SEED + patients)
    made, phantom_s = _timed(lambda: [make_patient(seed) for seed in seeds])
    for seed in seeds:  # templates of anatomies are made once in a process
        make_patient(seed, REALISTIC_PATIENTS)
    _, realistic_s = _timed(lambda: [make_patient(seed, REALISTIC_PATIENTS) for seed in seeds])
    _, preprocess_s = _timed(lambda: [preprocess(patient.ct, config) for patient in made])
    _, scan_s = _timed(lambda: [model_scan(patient, config) for patient in made])
    return {
        "phantoms made, volumes/s/core": patients / phantom_s,
        "realistic phantoms made, volumes/s/core": patients / realistic_s,
        "preprocessed, volumes/s/core": patients / preprocess_s,
        "preprocessed with all maps, volumes/s/core": patients / scan_s,
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = work()
    return result, time.process_time() - started
