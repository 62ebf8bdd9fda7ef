"""A data set on disk -> batches of fixed shape, by grain.

Shape letters: B scans, T positions of a row, O organs, L ROI slots, D H W.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import grain
import numpy as np
from grain.sources import ArrayRecordDataSource

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.ablation import without_cot, without_iir
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.data.training_rows import training_rows
from tumorchain_jax.models.language.chat_template import CHATML, ChatTemplate
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.organ_cells import organ_cells
from tumorchain_jax.reasoning.prompt import TEXT, Chat, History, Interleaved

Example = dict[str, np.ndarray]
PAD_SEGMENT = -1
"""Segment id of the positions behind the last question."""
READERS = min(16, os.cpu_count() or 1)
"""Threads that read, one batch each at a time."""


@dataclass(frozen=True)
class Layout:
    """The fixed shapes of an example, and how records become rows.

    Attributes:
        roi: the model's (`TumorChainConfig.roi`).
        length: T, positions of a row.
        history: what a round sees of the rounds before it.
        initial_roi: whether the question's turn holds the ROI of the organs it names.
        cot, iir: false for the ablations of `data/ablation.py`.
        template: of the language model's family.
    """

    roi: RoiSpec
    length: int
    history: History
    initial_roi: bool = False
    cot: bool = True
    iir: bool = True
    template: ChatTemplate = CHATML


@runtime_checkable
class Examples(Protocol):
    """Random access to examples of fixed shape, with a name each."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int) -> Example:
        """Make one."""

    def name(self, index: int) -> str:
        """Describe one, for people."""


class ExampleSource:
    """Random access to examples, for grain: a scan and a row of its questions.

    The patients are those of `split.json`'s `train`. A row holds as many of a scan's records, in
    order, as are sure to fit; the rest make further examples of that scan.

    Raises:
        InputError: no record is for training, or one is too long for a row.
    """

    def __init__(self, folder: Path, layout: Layout):
        self.layout = layout
        self.chat = Chat(Tokenizer.load(folder, layout.template.special_tokens), layout.template)
        self.prefix = self.chat.prefix(layout.roi.global_tokens)
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        patients = read_split(folder)["train"]
        records = [record for record in read_records(folder) if record.patient in patients]
        if not records:
            raise InputError(
                folder, "records", "none to train on", "a patient of split.json's train", "add some"
            )
        records = [_ablated(record, layout) for record in records]
        self.rooms = [self._room(record) for record in records]
        self.groups = self._groups(records)

    def packing(self) -> str:
        """Say in one line what packing several records of a scan into one row saves."""
        records, rows, prefix = len(self.rooms), len(self.groups), len(self.prefix)
        packed, alone = (sum(self.rooms) + prefix * prefixes for prefixes in (rows, records))
        return (
            f"{records} records in {rows} rows of {self.layout.length} positions, "
            f"{packed / (rows * self.layout.length):.0%} used; with a row for each record it would "
            f"be {alone / packed:.1f} times the tokens and {records / rows:.1f} times the positions"
        )

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> Example:
        layout, group = self.layout, self.groups[index]
        scan = ModelScan.from_bytes(self.scans[group[0].scan])
        table = organ_cells(scan.labels, layout.roi, scan.cropped)
        roi_index = table.slots(layout.roi)
        for record in group:
            _check_looks(record, roi_index)
        questions = [row for record in group for row in self._questions(record, roi_index)]
        _check_length(group[0], self._packed_length(questions), layout.length)
        crops = {"crops": scan.crops, "crop_world": scan.crop_world}
        return {
            "volume": scan.image,
            **(crops if layout.roi.crop else {}),
            **_pack(self.prefix, questions, layout.length, self.chat.tokenizer.pad),
            "roi_index": table.visual_index,
            "roi_valid": table.valid,
            "abnormal": scan.abnormal,
        }

    def name(self, index: int) -> str:
        """Describe an example: its scan, and how many of its records it holds."""
        group = self.groups[index]
        records = f"{len(group)} record{'s' * (len(group) > 1)}"
        return f"row {index}: {records} of scan {group[0].scan}, {group[0].patient}"

    def _questions(
        self, record: Record, roi_index: Mapping[int, Sequence[int] | np.ndarray]
    ) -> list[Interleaved]:
        layout, global_tokens = self.layout, self.layout.roi.global_tokens
        return training_rows(
            self.chat, record, global_tokens, roi_index, layout.history, layout.initial_roi
        )

    def _packed_length(self, questions: Sequence[Interleaved]) -> int:
        shared = len(self.prefix)
        return shared + sum(len(row) - shared for row in questions)

    def _groups(self, records: Sequence[Record]) -> list[list[Record]]:
        """Assign records to rows; every ROI counts at its largest, so no scan needs to be read."""
        length = self.layout.length
        groups: dict[int, list[list[Record]]] = {}
        left: dict[int, int] = {}
        for record, needed in zip(records, self.rooms, strict=True):
            _check_length(record, len(self.prefix) + needed, length)
            if needed > left.get(record.scan, 0):
                groups.setdefault(record.scan, []).append([])
                left[record.scan] = length - len(self.prefix)
            groups[record.scan][-1].append(record)
            left[record.scan] -= needed
        return [group for of_scan in groups.values() for group in of_scan]

    def _room(self, record: Record) -> int:
        """Count the positions of a record behind the prefix, every ROI at its largest."""
        largest = dict.fromkeys(range(1, len(ORGANS)), range(self.layout.roi.slots))
        return self._packed_length(self._questions(record, largest)) - len(self.prefix)


def _ablated(record: Record, layout: Layout) -> Record:
    record = record if layout.iir else without_iir(record)
    return record if layout.cot else without_cot(record)


def _check_length(record: Record, positions: int, most: int) -> None:
    if positions > most:
        raise InputError(
            record.patient,
            "record",
            f"up to {positions} positions",
            f"at most {most}",
            "raise config.data.length",
        )


def _check_looks(record: Record, visible: Collection[int]) -> None:
    hidden = {organ for target in record.rounds for organ in target.look_at} - set(visible)
    if hidden:
        raise InputError(
            record.patient,
            "look_at",
            f"{', '.join(ORGANS[organ] for organ in sorted(hidden))} without a voxel",
            "organs that the label map shows",
            "fix the record or the label map",
        )


def _pack(prefix: Interleaved, questions: Iterable[Interleaved], length: int, pad: int) -> Example:
    """Pack questions behind their common prefix; see `models/layers/attention.Packing`."""
    row = {
        "tokens": np.full(length, pad, np.int32),
        "visual_index": np.full(length, TEXT, np.int32),
        "loss_mask": np.zeros(length, bool),
        "positions": np.zeros(length, np.int32),
        "segment_ids": np.full(length, PAD_SEGMENT, np.int32),
    }
    start = 0
    for segment, sequence in enumerate([prefix, *questions]):
        shared = len(prefix) if segment else 0
        place = slice(start, start + len(sequence) - shared)
        row["tokens"][place] = sequence.tokens[shared:]
        row["visual_index"][place] = sequence.visual_index[shared:]
        row["loss_mask"][place] = sequence.loss_mask[shared:]
        row["positions"][place] = range(shared, len(sequence))
        row["segment_ids"][place] = segment
        start = place.stop
    return row


def batches(
    source: Examples,
    batch_size: int,
    seed: int,
    first_step: int,
    rows: Sequence[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Iterate over shuffled batches without end, from step `first_step` on.

    The order is one global sequence of examples, so the step alone says where to resume, whatever
    the number of processes.

    Args:
        rows: rows of each batch that this process reads; all by default.
    """
    dataset = _in_order(grain.MapDataset.source(source), seed)
    rows = range(batch_size) if rows is None else rows
    picked = grain.MapDataset.source(_Picked(dataset, batch_size, rows))
    # Endless, so without remainder; else grain rounds its length past what an int holds.
    picked = picked.batch(len(rows), drop_remainder=True)
    # An element is a whole batch: grain's own 500 in advance would be more than memory holds.
    options = grain.ReadOptions(num_threads=READERS, prefetch_buffer_size=READERS)
    return iter(picked[first_step:].to_iter_dataset(options))


def batch_names(source: Examples, batch_size: int, seed: int, step: int) -> list[str]:
    """Describe the examples of the batch of step `step` (from 1), in its order."""
    numbers = _in_order(grain.MapDataset.range(len(source)), seed)
    start = (step - 1) * batch_size
    return [source.name(int(numbers[start + row])) for row in range(batch_size)]


def _in_order(dataset: grain.MapDataset, seed: int) -> grain.MapDataset:
    """Shuffle each epoch in an order that depends on the length and the seed alone."""
    return dataset.seed(seed).shuffle().repeat()


class _Picked:
    """Random access to some rows of every batch, for grain."""

    def __init__(self, dataset: grain.MapDataset, batch_size: int, rows: Sequence[int]):
        self.dataset, self.batch_size, self.rows = dataset, batch_size, rows

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size * len(self.rows)

    def __getitem__(self, index: int) -> Example:
        batch, row = divmod(index, len(self.rows))
        return self.dataset[batch * self.batch_size + self.rows[row]]
