"""Scans with tags for what each cell holds: what the encoder's first lessons are made of.

See `training/pretraining/model.py`. Shape letters: N cells of a scan, D H W voxels of it, p q r of
a cell, S digestive organs, F findings: these and the kinds of `phantoms/incidental.py`.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import grain
import numpy as np
from grain.sources import ArrayRecordDataSource
from tqdm import tqdm

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.data.dataset import SUBSTRUCTURES, ModelScan, read_records, shard_paths
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE
from tumorchain_jax.reasoning.organ_cells import coverage

Cells = dict[str, np.ndarray]
"""`cells` (voxels `[N, p, q, r]`), `numbers` (raster index of each) and the fields of
`training/tags.Tags`, the cells on the first axis."""

ORGAN_SHARE, TUMOUR_SHARE, OTHER_SHARE = 0.05, 0.08, 0.025
"""Of a cell: what fills no more than this is hardly in it. Nodes and metastases are small."""
HEALTHY_CELLS, OTHER_CELLS = 64, 16
"""Kept of a scan, beside all that hold a finding: with a digestive organ, and without."""
BATCH_SHARES = (0.35, 0.5, 0.15)
"""Of a lesson: cells with a finding, healthy ones with a digestive organ, others."""


class TrainingScans:
    """The scans of `split.json`'s training patients by number, for grain."""

    def __init__(self, folder: Path):
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        patients = read_split(folder)["train"]
        chosen = {record.scan for record in read_records(folder) if record.patient in patients}
        self.numbers = sorted(chosen)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> ModelScan:
        return ModelScan.from_bytes(self.scans[self.numbers[index]])


class PatchLabelSource:
    """Tagged cells of the training patients' scans, in memory; batches of them by step.

    Every scan is cut `cuts` times, each time shifted by up to half a cell.
    """

    def __init__(self, folder: Path, encoder: ViT3DConfig, cuts: int, seed: int):
        scans = TrainingScans(folder)
        drawn: list[Cells] = []
        for index in tqdm(range(len(scans)), "cells", unit=" scans", disable=None):
            scan, rng = scans[index], np.random.default_rng([seed, index])
            drawn += [draw_cells(cut_scan(scan, encoder, rng), rng) for _ in range(cuts)]
        self.cells = {name: np.concatenate([cells[name] for cells in drawn]) for name in drawn[0]}
        ill, healthy = self.cells["found"].any(axis=1), self.cells["present"].any(axis=1)
        groups = ill, healthy & ~ill, ~healthy & ~ill
        self.groups = [np.flatnonzero(group) for group in groups]

    def batches(self, size: int, seed: int, first_step: int) -> Iterator[Cells]:
        """Endless batches from step `first_step` on; a step's depends on the seed and it alone."""
        step = first_step
        while True:
            rng = np.random.default_rng([seed, step])
            counts = [round(share * size) for share in BATCH_SHARES[1:]]
            counts = [size - sum(counts), *counts]
            chosen = np.concatenate(
                [
                    group[rng.integers(len(group), size=count)]
                    for group, count in zip(self.groups, counts, strict=True)
                    if len(group)
                ]
            )
            chosen = np.resize(chosen, size)  # where a group has nobody
            yield {field: values[chosen] for field, values in self.cells.items()}
            step += 1


def scan_batches(
    folder: Path, encoder: ViT3DConfig, size: int, seed: int, first_step: int
) -> Iterator[Cells]:
    """Endless batches of whole scans from step `first_step` on, each shifted as it comes.

    `volume` `[size, D, H, W]` and the tags of all its cells, `[size, N, ...]`.
    """

    def cut(scan: ModelScan, rng: np.random.Generator) -> Cells:
        tagged = cut_scan(scan, encoder, rng)
        volume = _volume(tagged.pop("cells"), encoder.cells)
        del tagged["numbers"]
        return {"volume": volume, **tagged}

    dataset = grain.MapDataset.source(TrainingScans(folder)).seed(seed).shuffle().repeat()
    dataset = dataset.random_map(cut).batch(size, drop_remainder=True)
    return iter(dataset[first_step:].to_iter_dataset(grain.ReadOptions(num_threads=2)))


def cut_scan(scan: ModelScan, encoder: ViT3DConfig, rng: np.random.Generator) -> Cells:
    """All cells of a scan shifted by up to half a cell, and their tags."""
    grid, patch = encoder.cells, encoder.patch
    reach = [size // 2 for size in patch]
    start = [int(rng.integers(2 * most + 1)) for most in reach]
    window = tuple(slice(at, at + n) for at, n in zip(start, encoder.image, strict=True))
    margin = [(most, most) for most in reach]
    image, labels, parts, lesions, others = (
        np.pad(volume, margin, "edge")[window]
        for volume in (scan.image, scan.labels, scan.parts, scan.lesions, scan.others)
    )
    sites, kinds = list(DIGESTIVE), [METASTASIS, NODE, LOOK_ALIKE]
    organs, filled = coverage(labels, grid), coverage(parts, grid)[: len(SUBSTRUCTURES) + 1]
    tumour = coverage(labels * (lesions > 0), grid)[sites]
    found = np.concatenate([tumour, coverage(others, grid)[kinds]]).T
    enough = prod(patch) * np.repeat((TUMOUR_SHARE, OTHER_SHARE), (len(sites), len(kinds)))
    filled[0] = 0
    (d, p), (h, q), (w, r) = zip(grid, patch, strict=True)
    cells = image.reshape(d, p, h, q, w, r).transpose(0, 2, 4, 1, 3, 5).reshape(-1, p, q, r)
    return {
        "cells": cells,
        "numbers": np.arange(len(cells), dtype=np.int32),
        "organ": organs.argmax(axis=0).astype(np.int32),
        "part": filled.argmax(axis=0).astype(np.int32),
        "present": ORGAN_SHARE * prod(patch) < organs[sites].T,
        "found": found > enough,
        "unsure": (found > 0) & (found <= enough),
        "centre": _centres(lesions, grid),
        "place": _places(grid),
        "traits": np.tile(scan.traits[1:].astype(np.int32), (len(cells), 1)),
    }


def _volume(cells: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """Cells `[N, p, q, r]` put together again: `[D, H, W]`."""
    d, h, w = grid
    _, p, q, r = cells.shape
    blocks = cells.reshape(d, h, w, p, q, r).transpose(0, 3, 1, 4, 2, 5)
    return blocks.reshape(d * p, h * q, w * r)


def draw_cells(cut: Cells, rng: np.random.Generator) -> Cells:
    """Of a scan's cells all that hold a finding, and some of the others."""
    ill, digestive = cut["found"].any(axis=1), cut["present"].any(axis=1)
    healthy, rest = (
        rng.permutation(np.flatnonzero(chosen)) for chosen in (digestive & ~ill, ~digestive & ~ill)
    )
    numbers = np.concatenate([np.flatnonzero(ill), healthy[:HEALTHY_CELLS], rest[:OTHER_CELLS]])
    return {name: values[numbers] for name, values in cut.items()}


def _places(grid: tuple[int, int, int]) -> np.ndarray:
    """Float32 `[N, 3]`: where each cell lies along D, H, W, from -1 to 1."""
    index = np.moveaxis(np.indices(grid), 0, -1).reshape(-1, 3)
    return (2 * index / np.maximum(np.array(grid) - 1, 1) - 1).astype(np.float32)


def _centres(lesions: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """Bool `[cells]`: whether the middle of a lesion lies in a cell."""
    centres = np.zeros(grid, bool)
    index = np.argwhere(lesions)
    of = lesions[tuple(index.T)]
    for number in np.unique(of):
        middle = index[of == number].mean(axis=0)
        centres[tuple((middle * grid / lesions.shape).astype(int))] = True
    return centres.ravel()
