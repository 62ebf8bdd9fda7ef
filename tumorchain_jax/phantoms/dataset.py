"""Digital patients as a data set of `data/dataset.py`, written by worker processes."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.progress import progress
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data.dataset import (
    FORMAT,
    NO_TRAITS,
    SCANS_PER_SHARD,
    ModelScan,
    on_model_grid,
    preprocess_values,
    read_manifest,
    read_records,
    write_array_record,
)
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import split_patients, write_split
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.crops import CropConfig
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, OTHERS, SHAPES
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import abnormal_organs, patient_records
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.scan.preprocess import PreprocessConfig

OTHER_TRAITS = tuple(dict.fromkeys(trait for traits in OTHERS.values() for trait in traits))


def model_scan(
    patient: Patient, config: PreprocessConfig, crops: CropConfig | None = None
) -> ModelScan:
    """Put a digital patient on the model's grid, and on that of each crop."""
    findings = patient.lesion_map, patient.other_map, _traits(patient)
    abnormal = abnormal_organs(patient)
    return on_model_grid(
        patient.ct, patient.labels, abnormal, config, *findings, crops, patient.beyond_map
    )


def _traits(patient: Patient) -> np.ndarray:
    if not patient.lesions:
        return NO_TRAITS
    lesion = patient.lesions[0]
    numbers = (
        DIGESTIVE.index(lesion.organ),
        DENSITIES.index(lesion.density),
        SHAPES.index(lesion.shape),
        BORDERS.index(lesion.border),
        OTHER_TRAITS.index(lesion.other),
    )
    return np.array(numbers, np.int8)


def write_phantoms(
    folder: Path,
    first_seed: int,
    count: int,
    config: PreprocessConfig,
    vocab_size: int,
    processes: int | None = None,
    settings: PatientSettings = SIMPLE_PATIENTS,
    crops: CropConfig | None = None,
) -> None:
    """Write `count` digital patients of consecutive seeds as a data set, resumably.

    Args:
        crops: to cut around organs, for models that read any.

    Raises:
        InputError: the folder holds a data set of other settings.
    """
    manifest: dict[str, object] = {
        "format": FORMAT,
        "synthetic": "every scan, lesion and sentence is made up",
        "first_seed": first_seed,
        "count": count,
        "preprocess": preprocess_values(config, crops),
        "vocab_size": vocab_size,
        **settings.facts(),
    }
    if (folder / "dataset.json").is_file():
        found = read_manifest(folder)
        if found != manifest:
            raise InputError(
                folder, "dataset.json", str(found), str(manifest), "name another folder"
            )
    else:  # before any shard, so that a run of other settings is refused
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "dataset.json", json.dumps(manifest, indent=1).encode())
    shards = -(-count // SCANS_PER_SHARD)
    names = [f"{shard:05d}-of-{shards:05d}.arrayrecord" for shard in range(shards)]
    todo = [i for i, name in enumerate(names) if not (folder / f"records-{name}").is_file()]
    make = partial(_write_shard, folder, names, first_seed, count, config, settings, crops)
    with local_workers(processes) as workers:
        for _ in progress(workers.map(make, todo), len(todo), "phantoms", "shards"):
            pass
    records = read_records(folder)
    if not (folder / "split.json").is_file():
        write_split(folder, split_patients(record.patient for record in records))
    if not (folder / "tokenizer.json").is_file():
        Tokenizer.train(_texts(records), vocab_size).save(folder)


def _write_shard(
    folder: Path,
    names: list[str],
    first_seed: int,
    count: int,
    config: PreprocessConfig,
    settings: PatientSettings,
    crops: CropConfig | None,
    shard: int,
) -> None:
    indices = range(shard * SCANS_PER_SHARD, min((shard + 1) * SCANS_PER_SHARD, count))
    scans, records = [], []
    for index in indices:
        patient = make_patient(first_seed + index, settings)
        scan = model_scan(patient, config, crops)
        scans.append(scan.to_bytes())
        visible = np.unique(scan.labels).tolist()
        of_patient = patient_records(patient, index, visible)
        records += [record.to_json().encode() for record in of_patient]
    # Records last: their presence says that the shard is complete.
    write_array_record(folder / f"scans-{names[shard]}", scans)
    write_array_record(folder / f"records-{names[shard]}", records)


def _texts(records: Iterable[Record]) -> Iterable[str]:
    for record in records:
        yield from (record.question, *record.choices, *(r.text for r in record.rounds))
