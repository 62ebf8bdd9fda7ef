"""Shards of scans: which scans each holds, writing them by workers, reusing those of earlier runs.

DIR/SHARD                  its scans, in the layout of `data/dataset.py`
DIR/.prepare/SHARD.json    the outcome of each; written after the shard
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.text import printable
from tumorchain_jax.data.dataset import ModelScan, on_model_grid, write_array_record
from tumorchain_jax.data.scan_list import ScanFiles
from tumorchain_jax.models.tumorchain.crops import CropConfig
from tumorchain_jax.scan.checks import check_fit, check_lesions
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scope.check import check_labels, check_scan
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import enforce

MOST_SHARDS = 512
"""Training opens all shards at once, and a worker that is stopped loses at most one."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of preparing a scan.

    Attributes:
        name, fingerprint: see `ScanFiles`.
        visible: merged labels that the model's grid shows.
        error: fields of the `InputError` for which it was skipped; None if it was written.
        warnings: what is odd about it, one line each.
    """

    name: str
    fingerprint: str
    visible: Sequence[int] = ()
    error: Mapping[str, str] | None = None
    warnings: Sequence[str] = ()


def cut(scans: Sequence[ScanFiles]) -> dict[str, Sequence[ScanFiles]]:
    """Map the file name of each shard to the scans in it."""
    size = -(-len(scans) // MOST_SHARDS)
    parts = [scans[start : start + size] for start in range(0, len(scans), size)]
    ending = f"of-{len(parts):05d}.arrayrecord"
    return {f"scans-{number:05d}-{ending}": part for number, part in enumerate(parts)}


def _outcomes_path(folder: Path, shard: str) -> Path:
    return folder / ".prepare" / f"{shard}.json"


def read_outcomes(folder: Path, shard: str) -> list[Outcome]:
    """Read the outcomes of the scans of a shard that is done."""
    return [Outcome(**values) for values in json.loads(_outcomes_path(folder, shard).read_bytes())]


def is_done(folder: Path, shard: str, scans: Sequence[ScanFiles]) -> bool:
    """Check whether the shard is there and was made from these very files."""
    if not (_outcomes_path(folder, shard).is_file() and (folder / shard).is_file()):
        return False
    found = [outcome.fingerprint for outcome in read_outcomes(folder, shard)]
    return found == [scan.fingerprint() for scan in scans]


def write_shards(
    folder: Path,
    shards: Mapping[str, Sequence[ScanFiles]],
    config: PreprocessConfig,
    workers: Executor,
    crops: CropConfig | None = None,
) -> float:
    """Write shards by workers.

    Returns:
        Seconds of one core that it took.

    Raises:
        InputError: the workers write to a folder that is not this one.
    """
    for shard in shards:  # an earlier outcome must not be taken for that of this run
        _outcomes_path(folder, shard).unlink(missing_ok=True)
    here = folder.absolute()
    write = partial(write_shard, here, config=config, crops=crops)
    tasks = workers.map(write, shards, shards.values())
    total, cpu_seconds = sum(map(len, shards.values())), 0.0
    with tqdm(desc="scans", total=total, disable=None) as bar:
        for shard, seconds in zip(shards, tasks, strict=True):
            if not _outcomes_path(folder, shard).is_file():
                expected, hint = "a folder that all workers share", "put it on shared storage"
                raise InputError(folder, "output", f"no {shard} of a worker", expected, hint)
            cpu_seconds += seconds
            outcomes = read_outcomes(folder, shard)
            bar.update(len(outcomes))
            for outcome in outcomes:
                for warning in outcome.warnings:
                    line = printable(f"tumorchain: warning: {outcome.name}: {warning}")
                    tqdm.write(line, file=sys.stderr)
                if outcome.error is not None:
                    line = f"tumorchain: skipped: {outcome.name}: {InputError(**outcome.error)}"
                    tqdm.write(line, file=sys.stderr)
    return cpu_seconds


def write_shard(
    folder: Path,
    shard: str,
    scans: Sequence[ScanFiles],
    config: PreprocessConfig,
    crops: CropConfig | None = None,
) -> float:
    """Write the scans that can be used, one at a time in memory, then the outcome of each.

    Returns:
        Seconds of one core.
    """
    start = time.process_time()
    outcomes: list[Outcome] = []
    write_array_record(folder / shard, _blobs(scans, config, crops, outcomes))
    content = json.dumps([asdict(outcome) for outcome in outcomes])
    write_file(_outcomes_path(folder, shard), content.encode())
    return time.process_time() - start


def _blobs(
    scans: Iterable[ScanFiles],
    config: PreprocessConfig,
    crops: CropConfig | None,
    outcomes: list[Outcome],
) -> Iterator[bytes]:
    for scan in scans:
        fingerprint = scan.fingerprint()
        try:
            made, warnings = read_scan(scan, config, crops)
        except InputError as error:
            outcomes.append(Outcome(scan.name, fingerprint, error=dict(vars(error))))
            continue
        except Exception as error:  # a fault of the machine or a bug: name the scan
            raise RuntimeError(f"{scan.name}: {type(error).__name__}: {error}") from error
        visible = np.unique(made.labels[made.labels > 0]).tolist()
        outcomes.append(Outcome(scan.name, fingerprint, visible, warnings=warnings))
        yield made.to_bytes()


def read_scan(
    scan: ScanFiles, config: PreprocessConfig, crops: CropConfig | None = None
) -> tuple[ModelScan, tuple[str, ...]]:
    """Read a scan and put it on the model's grid.

    Returns:
        The scan, and warnings about it, one line each.

    Raises:
        InputError: one of its files cannot be read, its maps are not on the CT's grid, it cannot
            be an abdominal CT, its label map cannot belong to it, or a lesion lies in air.
    """
    ct = read_ct(scan.ct)
    labels = read_labels(scan.labels, ct)
    coarse = coarse_scan(ct)
    assessed = enforce(ct.source, check_scan(ct, coarse), hint="")
    check_fit(labels, ct)
    assessed += enforce(labels.source, check_labels(labels, coarse), hint="")
    lesions = read_labels(scan.lesions, ct) if scan.lesions else None
    if lesions:
        check_lesions(lesions, ct)
    abnormal = np.full(len(ORGANS), -1, np.int8)
    abnormal[list(scan.abnormal)] = list(scan.abnormal.values())
    made = on_model_grid(ct, labels, abnormal, config, lesions, crops=crops)
    return made, ct.warnings + assessed.warnings
