"""From a data set on disk to batches of fixed shape, by grain.

Shape letters: B scans, Q rows (questions) of a scan, T positions, O organs, L ROI slots, D H W.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
from tumorchain_jax.scan.organ_cells import coverage, organ_cells
from tumorchain_jax.scan.organs import ORGANS

Example = dict[str, np.ndarray]
LESION_SHARE = 0.05
"""Of a cell: with more lesion than this it counts as holding one."""


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
    """Scans and what their cells hold, by number, for the encoder's pretraining."""

    def __init__(self, folder: Path, cells: tuple[int, int, int]):
        self.cells = cells
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> Example:
        scan = ModelScan.from_bytes(self.scans[index])
        counts = coverage(scan.lesions, self.cells)
        return {
            "volume": scan.image,
            "organ": coverage(scan.labels, self.cells).argmax(axis=0).astype(np.int32),
            "lesion": counts[1:].sum(axis=0) > LESION_SHARE * counts.sum(axis=0),
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
    dataset = grain.MapDataset.source(source).seed(seed).shuffle().repeat().batch(batch_size)
    return iter(dataset[first_step:].to_iter_dataset(grain.ReadOptions(num_threads=2)))
