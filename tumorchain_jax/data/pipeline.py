"""From a data set on disk to batches of fixed shape, by grain.

Shape letters: B scans, Q rows (questions) of a scan, T positions, O organs, L ROI slots, D H W.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain.sources import ArrayRecordDataSource

from tumorchain_jax.data.chat import TEXT, Chat, History, Interleaved, training_rows
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.organ_cells import coverage, organ_cells
from tumorchain_jax.scan.organs import DIGESTIVE, ORGANS

Example = dict[str, np.ndarray]
FEW_SHARE = 0.05
"""Of a cell: an organ or a lesion that fills no more than this is hardly in it."""
OTHERS_SHARE = 1 / 6
"""Of the cells drawn: those without a digestive organ."""


@dataclass(frozen=True)
class Layout:
    """The fixed shapes of an example, and where the visual tokens lie in the bank.

    Attributes:
        roi_grid, roi_offset, roi_slots, global_tokens: as in `TumorChainConfig`.
        rows: Q, rows that share a scan (and its encoding).
        length: T, positions of a row.
        history: what a round sees of the rounds before it.
        initial_roi: whether the question's turn holds the ROI of the organs it names.
    """

    roi_grid: tuple[int, int, int]
    roi_offset: int
    roi_slots: int
    global_tokens: int
    rows: int
    length: int
    history: History
    initial_roi: bool = False


class ExampleSource:
    """Examples by number: a scan and at most Q of its rows. Random access, for grain."""

    def __init__(self, folder: Path, layout: Layout):
        self.layout = layout
        self.chat = Chat(Tokenizer.load(folder))
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        self.records = read_records(folder)
        self.groups = _groups(self.records, layout)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> Example:
        layout = self.layout
        group = self.groups[index]
        scan = ModelScan.from_bytes(self.scans[self.records[group[0][0]].scan])
        table = organ_cells(scan.labels, layout.roi_grid, layout.roi_slots)
        roi_rows = table.bank_rows(layout.roi_offset)
        shape = (layout.rows, layout.length)
        tokens = np.full(shape, self.chat.tokenizer.pad, np.int32)
        bank_rows = np.full(shape, TEXT, np.int32)
        is_target = np.zeros(shape, bool)
        for q, (number, row_number) in enumerate(group):
            row = self._row(self.records[number], row_number, roi_rows)
            tokens[q, : len(row)] = row.tokens
            bank_rows[q, : len(row)] = row.bank_rows
            is_target[q, : len(row)] = row.is_target
        return {
            "volume": scan.image,
            "tokens": tokens,
            "bank_rows": bank_rows,
            "is_target": is_target,
            "roi_rows": table.cells + np.int32(layout.roi_offset),
            "roi_valid": table.valid,
            "abnormal": scan.abnormal,
        }

    def _row(self, record: Record, row_number: int, roi_rows: dict[int, np.ndarray]) -> Interleaved:
        layout = self.layout
        hidden = {o for target in record.rounds for o in target.look_at} - set(roi_rows)
        if hidden:
            raise InputError(
                record.patient,
                "look_at",
                f"{', '.join(ORGANS[organ] for organ in sorted(hidden))} without a voxel",
                "organs that the label map shows",
                "mend the record or the label map",
            )
        rows = training_rows(
            self.chat,
            record,
            layout.global_tokens,
            roi_rows,
            layout.history,
            layout.initial_roi,
        )
        if row_number >= len(rows):  # rounds that `initial_roi` made one
            return Interleaved()
        row = rows[row_number]
        if len(row) > layout.length:
            raise InputError(
                record.patient,
                "record",
                f"{len(row)} positions",
                f"at most {layout.length}",
                "raise config.data.length",
            )
        return row


class CellSource:
    """Scans by number, and random cells of them for the encoder's pretraining.

    Attributes:
        count: K, how many cells `draw` takes of a scan.
    """

    def __init__(self, folder: Path, encoder: ViT3DConfig, count: int):
        self.encoder, self.count = encoder, count
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> ModelScan:
        return ModelScan.from_bytes(self.scans[index])

    def draw(self, scan: ModelScan, rng: np.random.Generator) -> Example:
        """Cells, most with a digestive organ in them, of the scan shifted by up to half a cell."""
        grid, patch = self.encoder.cells, self.encoder.patch
        reach = [size // 2 for size in patch]
        start = [int(rng.integers(2 * most + 1)) for most in reach]
        window = tuple(slice(at, at + n) for at, n in zip(start, self.encoder.image, strict=True))
        margin = [(most, most) for most in reach]
        image, labels, lesions = (
            np.pad(volume, margin, "edge")[window]
            for volume in (scan.image, scan.labels, scan.lesions)
        )
        sites = list(DIGESTIVE)
        organs, ill = coverage(labels, grid), coverage(lesions, grid)[sites].T
        few = FEW_SHARE * prod(patch)
        present = few < organs[sites].T
        digestive, others = (
            rng.permutation(np.flatnonzero(chosen))
            for chosen in (present.any(axis=1), ~present.any(axis=1))
        )
        few_others = others[: int(OTHERS_SHARE * self.count)]
        numbers = np.concatenate([few_others, digestive, others])
        numbers = np.resize(numbers, max(self.count, numbers.size))[: self.count]
        (d, p), (h, q), (w, r) = zip(grid, patch, strict=True)
        cells = image.reshape(d, p, h, q, w, r).transpose(0, 2, 4, 1, 3, 5).reshape(-1, p, q, r)
        return {
            "cells": cells[numbers],
            "numbers": numbers.astype(np.int32),
            "organ": organs.argmax(axis=0)[numbers].astype(np.int32),
            "present": present[numbers],
            "lesion": ill[numbers] > few,
            "unsure": (ill[numbers] > 0) & (ill[numbers] <= few),
        }


def _groups(records: list[Record], layout: Layout) -> list[list[tuple[int, int]]]:
    """(record, row) pairs of the same scan, in groups of Q."""
    by_scan: dict[int, list[tuple[int, int]]] = {}
    for number, record in enumerate(records):
        rows = 1
        if layout.history == "latest":
            rows = sum(not target.given for target in record.rounds)
        by_scan.setdefault(record.scan, []).extend((number, row) for row in range(rows))
    Q = layout.rows
    return [rows[i : i + Q] for rows in by_scan.values() for i in range(0, len(rows), Q)]


def batches(
    source: ExampleSource | CellSource, batch_size: int, seed: int, first_step: int
) -> Iterator[dict[str, Any]]:
    """Endless shuffled batches from step `first_step` on, as if one had come there step by step.

    The order is one global sequence of examples, so where to go on is one number.
    """
    dataset = grain.MapDataset.source(source).seed(seed).shuffle().repeat()
    if isinstance(source, CellSource):
        dataset = dataset.random_map(source.draw)
    dataset = dataset.batch(batch_size)
    return iter(dataset[first_step:].to_iter_dataset(grain.ReadOptions(num_threads=2)))
