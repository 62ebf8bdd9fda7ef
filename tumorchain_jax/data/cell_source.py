"""Random cells of a data set's scans with tags for what they hold: the encoder's first lesson.

See `models/cell_tagger.py`. Shape letters: K cells, D H W voxels of a scan, p q r of a cell,
S digestive organs, F findings: these and the kinds of `scan/incidental.py`.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
from grain.sources import ArrayRecordDataSource
from tqdm import tqdm

from tumorchain_jax.data.dataset import PARTS, ModelScan, read_records, shard_paths
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.incidental import LOOK_ALIKE, METASTASIS, NODE
from tumorchain_jax.scan.organ_cells import coverage
from tumorchain_jax.scan.organs import DIGESTIVE

Cells = dict[str, np.ndarray]
"""By field of `training/encoder.CellBatch`, the cells on the first axis."""

ORGAN_SHARE, TUMOUR_SHARE, OTHER_SHARE = 0.05, 0.08, 0.025
"""Of a cell: what fills no more than this is hardly in it. Nodes and metastases are small."""
HEALTHY_CELLS, OTHER_CELLS = 64, 16
"""Kept of a scan, beside all that hold a finding: with a digestive organ, and without."""
BATCH_SHARES = (0.35, 0.5, 0.15)
"""Of a batch: cells with a finding, healthy ones with a digestive organ, others."""


class CellSource:
    """Tagged cells of the training patients' scans, in memory; batches of them by step.

    Every scan is cut `cuts` times, each time shifted by up to half a cell.
    """

    def __init__(self, folder: Path, encoder: ViT3DConfig, cuts: int, seed: int):
        scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        patients = read_split(folder)["train"]
        chosen = {record.scan for record in read_records(folder) if record.patient in patients}
        drawn: list[Cells] = []
        for index in tqdm(sorted(chosen), "cells", unit=" scans", disable=None):
            scan, rng = ModelScan.from_bytes(scans[index]), np.random.default_rng([seed, index])
            drawn += [draw_cells(scan, encoder, rng) for _ in range(cuts)]
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


def draw_cells(scan: ModelScan, encoder: ViT3DConfig, rng: np.random.Generator) -> Cells:
    """Cells of a scan shifted by up to half a cell: all with a finding, some of the others."""
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
    organs, filled = coverage(labels, grid), coverage(parts, grid)[: len(PARTS) + 1]
    tumour = coverage(labels * (lesions > 0), grid)[sites]
    found = np.concatenate([tumour, coverage(others, grid)[kinds]]).T
    enough = prod(patch) * np.repeat((TUMOUR_SHARE, OTHER_SHARE), (len(sites), len(kinds)))
    present = ORGAN_SHARE * prod(patch) < organs[sites].T
    filled[0] = 0

    ill, digestive = (found > enough).any(axis=1), present.any(axis=1)
    healthy, rest = (
        rng.permutation(np.flatnonzero(chosen)) for chosen in (digestive & ~ill, ~digestive & ~ill)
    )
    numbers = np.concatenate([np.flatnonzero(ill), healthy[:HEALTHY_CELLS], rest[:OTHER_CELLS]])
    (d, p), (h, q), (w, r) = zip(grid, patch, strict=True)
    cells = image.reshape(d, p, h, q, w, r).transpose(0, 2, 4, 1, 3, 5).reshape(-1, p, q, r)
    return {
        "cells": cells[numbers],
        "numbers": numbers.astype(np.int32),
        "organ": organs.argmax(axis=0)[numbers].astype(np.int32),
        "part": filled.argmax(axis=0)[numbers].astype(np.int32),
        "present": present[numbers],
        "found": found[numbers] > enough,
        "unsure": (found[numbers] > 0) & (found[numbers] <= enough),
        "centre": _centres(lesions, grid)[numbers],
        "traits": np.tile(scan.traits[1:].astype(np.int32), (len(numbers), 1)),
    }


def _centres(lesions: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """Bool `[cells]`: whether the middle of a lesion lies in a cell."""
    centres = np.zeros(grid, bool)
    index = np.argwhere(lesions)
    of = lesions[tuple(index.T)]
    for number in np.unique(of):
        middle = index[of == number].mean(axis=0)
        centres[tuple((middle * grid / lesions.shape).astype(int))] = True
    return centres.ravel()
