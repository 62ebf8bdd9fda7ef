"""Digital patients on a segmentation plan's grid, and patches of them.

    DIR/phantoms.json                       manifest
    DIR/scans-00000-of-00008.arrayrecord    one safetensors blob a scan: see `LabelledScan`

Shards are written under a temporary name and renamed, so that a stopped run resumes.

Shape letters: D H W voxels along the network's own axes, p q r of a patch, B patches.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader
from safetensors.numpy import load, save
from tqdm import tqdm

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data.dataset import shard_paths, write_array_record
from tumorchain_jax.models.unet3d.model import Size
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.segmentation.plans import Intensity, Plan, Spline
from tumorchain_jax.segmentation.preprocess import find_grids, preprocess
from tumorchain_jax.segmentation.resample import Resize, Weights, plan_resize

MANIFEST = "phantoms.json"
SCANS_PER_SHARD = 50
LINEAR = Spline(order=1, order_z=0, separate_z=None, threshold=3.0)
"""How nnU-Net resamples labels."""
TIE = 1e-6
"""Weights of labels that differ by less are equal."""
PLACED = 1 / 3
"""Share of the patches around a voxel of a label drawn among the scan's, as in nnU-Net."""
INTENSITY_SCANS, INTENSITY_VOXELS = 40, 10_000
"""Number of scans, and of voxels of each, on which intensities are measured ..."""
SOFT_TISSUE = -200.0, 300.0
"""... between these HU."""

Patches = dict[str, np.ndarray]
"""`image` float32 `[B, p, q, r, 1]`, 0 where a patch reaches beyond its scan, and `labels` uint8
`[B, p, q, r]`."""


@dataclass(frozen=True)
class LabelledScan:
    """A scan as the network reads it, and its organs.

    Attributes:
        image: normalised; float16 `[D, H, W]`.
        labels: the plan's numbers; uint8 `[D, H, W]`.
    """

    image: np.ndarray
    labels: np.ndarray

    def to_bytes(self) -> bytes:
        """Serialise to a safetensors blob."""
        return save(asdict(self))

    @classmethod
    def from_bytes(cls, blob: bytes) -> "LabelledScan":
        """The inverse of `to_bytes`."""
        return cls(**load(blob))


def measure_intensity(first_seed: int, settings: PatientSettings = SIMPLE_PATIENTS) -> Intensity:
    """HU of the soft tissue of digital patients.

    nnU-Net measures all organs; lungs and gas among them would leave little of the contrast
    between the others.
    """
    low, high = SOFT_TISSUE
    drawn = []
    for seed in tqdm(range(first_seed, first_seed + INTENSITY_SCANS), "intensity", disable=None):
        hu = make_patient(seed, settings).ct.voxels
        soft = hu[(hu > low) & (hu < high)]
        drawn.append(np.random.default_rng(seed).choice(soft, INTENSITY_VOXELS))
    values = np.concatenate(drawn).astype(np.float64)
    low, high = np.percentile(values, [0.5, 99.5])
    return Intensity(float(values.mean()), float(values.std()), float(low), float(high))


def labelled_scan(patient: Patient, plan: Plan) -> LabelledScan:
    """A digital patient on the plan's grid."""
    table = np.zeros(len(TOTALSEGMENTATOR), np.uint8)
    for name, value in plan.labels.items():
        table[TOTALSEGMENTATOR.index(name)] = value
    grids = find_grids(patient.ct, plan)
    labels = patient.labels.voxels.T.transpose(plan.transpose_forward)[grids.box]
    here, there = (grids.shape, grids.network_shape), (grids.spacing, plan.spacing)
    resize = plan_resize(LINEAR, *here, *there)
    image = preprocess(patient.ct, plan, grids).astype(np.float16)
    return LabelledScan(image, resample_labels(table[labels], resize))


def resample_labels(labels: np.ndarray, resize: Resize) -> np.ndarray:
    """The largest label at each new voxel, by linear interpolation of each label's mask.

    A new voxel lies between eight old ones: only their labels can be the largest. Of labels that
    are equally large the first is taken.
    """
    pairs = [_neighbours(*axis) for axis in zip(resize.weights, labels.shape, strict=True)]
    corners = list(product((0, 1), repeat=3))
    found = np.stack([labels[np.ix_(*_side(corner, pairs, 0))] for corner in corners])
    shares = np.stack([reduce(np.multiply, np.ix_(*_side(corner, pairs, 1))) for corner in corners])
    totals = [((found == own) * shares).sum(axis=0) for own in found]
    best = np.max(totals, axis=0) - TIE
    rivals = np.where(totals >= best, found, np.iinfo(labels.dtype).max)
    return rivals.min(axis=0)


def _neighbours(weights: Weights, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The two old voxels beside each new one along an axis, and their weights: both `[2, out]`."""
    if weights is None:
        weights = np.eye(size, dtype=np.float32)
    first = (weights != 0).argmax(axis=1)
    both = np.stack([first, np.minimum(first + 1, size - 1)])
    of_first = np.take_along_axis(weights, first[:, None], axis=1)[:, 0]
    return both, np.stack([of_first, 1 - of_first])


def _side(
    corner: tuple[int, ...], pairs: Sequence[tuple[np.ndarray, np.ndarray]], which: int
) -> list[np.ndarray]:
    """Indices (0) or weights (1) of one corner along each axis."""
    return [pair[which][side] for side, pair in zip(corner, pairs, strict=True)]


def write_labelled_phantoms(
    folder: Path,
    plan: Plan,
    first_seed: int,
    count: int,
    processes: int | None = None,
    settings: PatientSettings = SIMPLE_PATIENTS,
) -> None:
    """Make `count` digital patients from consecutive seeds on a plan's grid; resumes.

    Raises:
        InputError: the folder holds digital patients of another configuration.
    """
    check_manifest(folder, plan, first_seed, count, settings)
    if not (folder / MANIFEST).is_file():  # before any shard, so that no other run adds its own
        manifest = _manifest(plan, first_seed, count, settings)
        write_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    shards = -(-count // SCANS_PER_SHARD)
    names = [f"scans-{shard:05d}-of-{shards:05d}.arrayrecord" for shard in range(shards)]
    todo = [shard for shard, name in enumerate(names) if not (folder / name).is_file()]
    make = partial(_write_shard, folder, names, plan, first_seed, count, settings)
    with local_workers(processes) as workers:
        list(tqdm(workers.map(make, todo), "phantoms", len(todo), unit=" shards", disable=None))


def check_manifest(
    folder: Path, plan: Plan, first_seed: int, count: int, settings: PatientSettings
) -> None:
    """Refuse a folder with digital patients of another configuration.

    Raises:
        InputError: its manifest differs; a folder without one is accepted.
    """
    path, expected = folder / MANIFEST, _manifest(plan, first_seed, count, settings)
    if path.is_file() and (found := json.loads(path.read_bytes())) != expected:
        raise InputError(path, "phantoms", str(found), str(expected), "name another folder")


def _manifest(plan: Plan, first_seed: int, count: int, settings: PatientSettings) -> dict[str, Any]:
    return {
        "synthetic": "every scan is made up",
        "first_seed": first_seed,
        "count": count,
        "spacing": list(plan.spacing),
        "intensity": asdict(plan.intensities[0]),
        "labels": dict(plan.labels),
        **settings.facts(),
    }


def _write_shard(
    folder: Path,
    names: list[str],
    plan: Plan,
    first_seed: int,
    count: int,
    settings: PatientSettings,
    shard: int,
) -> None:
    numbers = range(shard * SCANS_PER_SHARD, min((shard + 1) * SCANS_PER_SHARD, count))
    patients = (make_patient(first_seed + number, settings) for number in numbers)
    blobs = (labelled_scan(patient, plan).to_bytes() for patient in patients)
    write_array_record(folder / names[shard], blobs)


class PatchSource:
    """The labelled scans of a folder, and batches of their patches by step."""

    def __init__(self, folder: Path, patch_size: Size):
        self._blobs: list[bytes] = []
        for path in shard_paths(folder, "scans"):
            reader = ArrayRecordReader(path)
            self._blobs += reader.read_all()
            reader.close()
        self._patch_size = patch_size

    def __len__(self) -> int:
        return len(self._blobs)

    def batches(
        self, size: int, rows: Sequence[int], seed: int, first_step: int
    ) -> Iterator[Patches]:
        """Endless batches from step `first_step` on; a step's depends on the seed and it alone.

        Every epoch goes through all scans, in an order of its own.

        Args:
            size: of a whole batch.
            rows: which of its rows to read.
        """
        step = first_step
        while True:
            chosen = [self._draw(step * size + row, seed) for row in rows]
            yield {name: np.stack([patch[name] for patch in chosen]) for name in chosen[0]}
            step += 1

    def names(self, size: int, seed: int, step: int) -> list[str]:
        """The scans in the batch that step `step` (from 1) reads, by number in the folder."""
        turns = range((step - 1) * size, step * size)
        return [f"scan {self._scan_of(turn, seed)}" for turn in turns]

    def _scan_of(self, turn: int, seed: int) -> int:
        count = len(self)
        order = np.random.default_rng([seed, 0, turn // count]).permutation(count)
        return int(order[turn % count])

    def _draw(self, turn: int, seed: int) -> Patches:
        scan = LabelledScan.from_bytes(self._blobs[self._scan_of(turn, seed)])
        return draw_patch(scan, self._patch_size, np.random.default_rng([seed, 1, turn]))


def draw_patch(scan: LabelledScan, size: Size, rng: np.random.Generator) -> Patches:
    """A patch at random, without a batch's axis: see `PLACED`; along an axis where the scan is
    smaller than the patch it is put somewhere in it.
    """
    shape = np.array(scan.labels.shape)
    low, high = np.minimum(shape - size, 0), np.maximum(shape - size, 0)
    start = rng.integers(low, high, endpoint=True)
    present = np.unique(scan.labels)[1:]
    if rng.random() < PLACED and len(present):
        voxels = np.argwhere(scan.labels == rng.choice(present))
        start = (rng.choice(voxels) - np.array(size) // 2).clip(low, high)
    inside = tuple(slice(max(0, a), a + n) for a, n in zip(start, size, strict=True))
    before = np.maximum(-start, 0)
    missing = size - before - [len(range(n)[part]) for part, n in zip(inside, shape, strict=True)]
    margin = list(zip(before, missing, strict=True))
    image = np.pad(scan.image[inside].astype(np.float32), margin)
    return {"image": image[..., None], "labels": np.pad(scan.labels[inside], margin)}
