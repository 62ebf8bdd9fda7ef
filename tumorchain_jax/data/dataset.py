"""A TumorCoT data set on disk: scans in their model shape, records, tokenizer, manifest.

    DIR/dataset.json                        counts, preprocessing, what is synthetic
    DIR/tokenizer.json
    DIR/split.json                          which patients train and test: see `data/splits.py`
    DIR/scans-00000-of-00008.arrayrecord    one safetensors blob for each scan: see `ModelScan`
    DIR/records-00000-of-00008.arrayrecord  one JSON record each; `scan` counts over all shards

Shards are written under a temporary name and renamed, so a stopped run can be resumed.
"""

import json
from binascii import crc32
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from tumorchain_jax.models.tumorchain.crops import WORLD, CropConfig
from tumorchain_jax.reasoning.crops import cut_crops, place_crops
from tumorchain_jax.reasoning.organ_cells import CropLabels
from tumorchain_jax.scan.preprocess import (
    GridTransform,
    PreparedScan,
    PreprocessConfig,
    preprocess,
    resample_labels,
)
from tumorchain_jax.scan.volume import Volume

SCANS_PER_SHARD = 250
FORMAT = 3
"""Version of the layout; 2 had one map of lesions, no parts, traits or split."""
SUBSTRUCTURES = tuple(part for parts in SEGMENTS.values() for part in parts)
"""Parts of the digestive organs, in the order of their numbers in `ModelScan.parts`."""
NO_TRAITS = np.full(5, -1, np.int8)


def _no_crops() -> np.ndarray:
    return np.zeros((0, 0, 0, 0), np.uint8)


def _no_map() -> np.ndarray:
    return np.zeros((0, 0, 0), np.uint8)


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
        crops: uint8 `[C, D, H, W]`, as `image`, of the crops around organs; C is 0 in a data set
            for models without.
        crop_labels, crop_parts, crop_lesions, crop_others: uint8 `[C, D, H, W]`, as the maps of the
            same names. The parts are those of the model's grid, whose landmarks a crop may lack.
        crop_world: float32 `[C, 7]`, see `models/tumorchain/crops.py: WORLD`.
        beyond, crop_beyond: uint8, as `Patient.beyond_map`; empty where the truth of the scan is
            not complete.
        lesion_mm: float32 `[1]`, diameter of the ball with the volume of the largest lesion; 0
            without one. Empty in a data set made before it was stored.
    """

    image: np.ndarray
    labels: np.ndarray
    parts: np.ndarray
    lesions: np.ndarray
    others: np.ndarray
    traits: np.ndarray
    abnormal: np.ndarray
    crops: np.ndarray = field(default_factory=_no_crops)
    crop_labels: np.ndarray = field(default_factory=_no_crops)
    crop_parts: np.ndarray = field(default_factory=_no_crops)
    crop_lesions: np.ndarray = field(default_factory=_no_crops)
    crop_others: np.ndarray = field(default_factory=_no_crops)
    crop_world: np.ndarray = field(default_factory=lambda: np.zeros((0, WORLD), np.float32))
    beyond: np.ndarray = field(default_factory=_no_map)
    crop_beyond: np.ndarray = field(default_factory=_no_crops)
    lesion_mm: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    @property
    def cropped(self) -> CropLabels:
        """Which cells of the crops each organ touches."""
        return CropLabels(self.crop_labels, self.crop_world)

    def to_bytes(self) -> bytes:
        """Serialize as a safetensors blob, without the fields that are empty."""
        return save({name: array for name, array in asdict(self).items() if array.size})

    @classmethod
    def from_bytes(cls, blob: bytes) -> "ModelScan":
        """The inverse of `to_bytes`."""
        return cls(**load(blob))

    def views(self) -> "list[ModelScan]":
        """The scan, then each crop of it that is there, as a scan of its own."""
        found = [self]
        for n in np.flatnonzero(self.crop_world[:, -1]):
            image, labels, parts = self.crops[n], self.crop_labels[n], self.crop_parts[n]
            lesions, others = self.crop_lesions[n], self.crop_others[n]
            maps = {"labels": labels, "parts": parts, "lesions": lesions, "others": others}
            if len(self.crop_beyond):
                maps["beyond"] = self.crop_beyond[n]
            found.append(replace(self, image=image, **maps))
        return found


def on_model_grid(
    ct: Volume,
    labels: Volume,
    abnormal: np.ndarray,
    config: PreprocessConfig,
    lesions: Volume | None = None,
    others: Volume | None = None,
    traits: np.ndarray = NO_TRAITS,
    crops: CropConfig | None = None,
    beyond: Volume | None = None,
) -> ModelScan:
    """Preprocess a CT and its maps, all of one grid.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 `total` ids.
        abnormal, lesions, others, traits: as in `ModelScan`; without a map, all of it is 0.
        crops: to cut around organs, for models that read any. Their boxes are jittered, by an
            amount that depends on the scan alone.
        beyond: as in `ModelScan`; None where it is not known.
    """
    prepared = preprocess(ct, config)
    ids = _resample(labels, prepared.transform)
    scan = ModelScan(
        _in_steps(prepared.image),
        merge_labels(ids),
        part_map(Volume(ids, prepared.transform.to_world, labels.source)),
        _resample(lesions, prepared.transform),
        _resample(others, prepared.transform),
        traits,
        abnormal,
        lesion_mm=largest_lesion_mm(lesions),
    )
    if beyond is not None:
        scan = replace(scan, beyond=_resample(beyond, prepared.transform))
    if crops is None:
        return scan
    return _with_crops(scan, prepared, ct, labels, config, lesions, others, crops, beyond)


def _with_crops(
    scan: ModelScan,
    prepared: PreparedScan,
    ct: Volume,
    labels: Volume,
    config: PreprocessConfig,
    lesions: Volume | None,
    others: Volume | None,
    crops: CropConfig,
    beyond: Volume | None,
) -> ModelScan:
    rng = np.random.default_rng(crc32(scan.image.tobytes()))
    places = place_crops(ct, scan.labels, prepared.transform, crops, rng)
    cut = cut_crops(ct, labels, prepared.transform, places, config)
    parts = Volume(scan.parts, prepared.transform.to_world)

    def resample(volume: Volume | None) -> np.ndarray:
        empty = np.zeros(config.grid, np.uint8)
        return np.stack([_resample(volume, place) if place else empty for place in places])

    return replace(
        scan,
        crops=_in_steps(cut.images),
        crop_labels=cut.labels,
        crop_parts=resample(parts),
        crop_lesions=resample(lesions),
        crop_others=resample(others),
        crop_world=cut.world,
        crop_beyond=_no_crops() if beyond is None else resample(beyond),
    )


def _in_steps(image: np.ndarray) -> np.ndarray:
    return np.round(image * 255).astype(np.uint8)


def _resample(volume: Volume | None, transform: GridTransform) -> np.ndarray:
    if volume is None:
        return np.zeros(transform.grid, np.uint8)
    return resample_labels(volume, transform)


def largest_lesion_mm(lesions: Volume | None) -> np.ndarray:
    """Diameter of the ball with the volume of the largest lesion, mm: float32 `[1]`, 0 for none."""
    if lesions is None:
        return np.zeros(1, np.float32)
    voxels = np.bincount(lesions.voxels.ravel().astype(np.int64), minlength=2)[1:].max()
    mm3 = voxels * np.abs(np.linalg.det(lesions.affine[:3, :3]))
    return np.array([np.cbrt(6 * mm3 / np.pi)], np.float32)


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


def preprocess_values(config: PreprocessConfig, crops: CropConfig | None = None) -> dict[str, Any]:
    """Return the preprocessing as a manifest has it."""
    values = asdict(config) | {"grid": list(config.grid)}
    return values | {"crops": crops.geometry()} if crops else values


def check_preprocess(
    folder: Path, manifest: Mapping[str, Any], expected: Mapping[str, Any], hint: str
) -> None:
    """Refuse a data set of another preprocessing; crops that a model does not read do not count.

    Args:
        manifest: of the data set in the folder.
        expected: the model's, as from `preprocess_values`.

    Raises:
        InputError: the data set's is another one.
    """
    found = manifest.get("preprocess")
    read = dict(found) if isinstance(found, dict) else {}
    if "crops" not in expected:
        read.pop("crops", None)
    if read != expected:
        path = folder / "dataset.json"
        raise InputError(path, "preprocess", str(found), str(dict(expected)), hint)


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
