"""A TumorCoT data set on disk: scans in their model shape, records, tokenizer, manifest.

    DIR/dataset.json                        counts, preprocessing, what is synthetic
    DIR/tokenizer.json
    DIR/split.json                          which patients train and test: see `data/splits.py`
    DIR/scans-00000-of-00008.arrayrecord    one safetensors blob for each scan: see `ModelScan`
    DIR/records-00000-of-00008.arrayrecord  one JSON record each; `scan` counts over all shards

Shards are written under a temporary name and renamed, so a stopped run can be resumed.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from safetensors.numpy import load, save

from tumorchain_jax.anatomy.organs import merge_labels
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_map
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path
from tumorchain_jax.data.schema import Record
from tumorchain_jax.scan.preprocess import PreprocessConfig, preprocess, resample_labels
from tumorchain_jax.scan.volume import Volume

SCANS_PER_SHARD = 250
FORMAT = 3
"""Version of the layout; 2 had one map of lesions, no parts, traits or split."""
SUBSTRUCTURES = tuple(part for parts in SEGMENTS.values() for part in parts)
"""Parts of the digestive organs, in the order of their numbers in `ModelScan.parts`."""
NO_TRAITS = np.full(5, -1, np.int8)


@dataclass(frozen=True)
class ModelScan:
    """A scan on the model's grid, as training reads it.

    Attributes:
        image: uint8 `[D, H, W]`, the CT window's [0, 1] in steps of 1/255.
        labels: uint8 `[D, H, W]`, merged organ labels.
        parts: uint8 `[D, H, W]`, n in the n-th of `SUBSTRUCTURES`, else 0.
        lesions: uint8 `[D, H, W]`, n in the n-th lesion of the patient's tumour, else 0.
        others: uint8 `[D, H, W]`, as `Patient.other_map`.
        traits: int8 `[5]`, of the tumour: its organ's number in `DIGESTIVE`, then those of its
            density, shape, border and of `OTHER_TRAITS`; all -1 where there is none.
        abnormal: int8 `[57]`, 1 abnormal, 0 normal, -1 unknown.
    """

    image: np.ndarray
    labels: np.ndarray
    parts: np.ndarray
    lesions: np.ndarray
    others: np.ndarray
    traits: np.ndarray
    abnormal: np.ndarray

    def to_bytes(self) -> bytes:
        """Serialize as a safetensors blob."""
        return save(asdict(self))

    @classmethod
    def from_bytes(cls, blob: bytes) -> "ModelScan":
        """The inverse of `to_bytes`."""
        return cls(**load(blob))


def on_model_grid(
    ct: Volume,
    labels: Volume,
    abnormal: np.ndarray,
    config: PreprocessConfig,
    lesions: Volume | None = None,
    others: Volume | None = None,
    traits: np.ndarray = NO_TRAITS,
) -> ModelScan:
    """Preprocess a CT and its maps, all of one grid.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 `total` ids.
        abnormal, lesions, others, traits: as in `ModelScan`; without a map, all of it is 0.
    """
    prepared = preprocess(ct, config)

    def resample(volume: Volume | None) -> np.ndarray:
        if volume is None:
            return np.zeros(config.grid, np.uint8)
        return resample_labels(volume, prepared.transform)

    ids = resample(labels)
    return ModelScan(
        np.round(prepared.image * 255).astype(np.uint8),
        merge_labels(ids),
        part_map(Volume(ids, prepared.transform.to_world, labels.source)),
        resample(lesions),
        resample(others),
        traits,
        abnormal,
    )


def part_map(labels: Volume) -> np.ndarray:
    """Number the substructures of the digestive organs.

    Args:
        labels: TotalSegmentator v2 `total` ids.

    Returns:
        uint8, n where the n-th of `SUBSTRUCTURES` is, else 0.
    """
    parts = np.zeros(labels.shape, np.uint8)
    for organ in np.intersect1d(labels.voxels, list(SEGMENTS)).tolist():
        own = segment_map(labels, organ)
        parts += np.where(
            own > 0, own + np.uint8(SUBSTRUCTURES.index(SEGMENTS[organ][0])), np.uint8(0)
        )
    return parts


def write_array_record(path: Path, blobs: Iterable[bytes]) -> None:
    """Write an ArrayRecord file; it appears whole or not at all, and one blob is in memory."""
    with atomic_path(path) as part:
        writer = ArrayRecordWriter(str(part), "group_size:1")
        try:
            for blob in blobs:
                writer.write(blob)
        finally:
            writer.close()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read `dataset.json`.

    Raises:
        InputError: there is none, or it is of another format.
    """
    path = folder / "dataset.json"
    if not path.is_file():
        raise InputError(folder, "dataset.json", "none", "a data set", "make or complete it first")
    try:
        manifest = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(path, "JSON", repr(str(error)), "an object", "make it again") from error
    if manifest.get("format") != FORMAT:
        found = str(manifest.get("format", "none"))
        raise InputError(path, "format", found, str(FORMAT), "make the data set again elsewhere")
    return manifest


def preprocess_values(config: PreprocessConfig) -> dict[str, Any]:
    """Return the preprocessing as a manifest has it."""
    return asdict(config) | {"grid": list(config.grid)}


def shard_paths(folder: Path, kind: str) -> list[str]:
    """List the ArrayRecord files of `scans` or `records`, in order."""
    return sorted(str(path) for path in folder.glob(f"{kind}-*.arrayrecord"))


def read_records(folder: Path) -> list[Record]:
    """Read and check all records.

    Raises:
        InputError: one is malformed; the message names its shard and number.
    """
    records = []
    for path in shard_paths(folder, "records"):
        reader = ArrayRecordReader(path)
        lines: Sequence[bytes] = reader.read_all()
        reader.close()
        records += [Record.from_json(line.decode(), f"{path}[{i}]") for i, line in enumerate(lines)]
    return records
