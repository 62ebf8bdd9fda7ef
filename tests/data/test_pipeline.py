import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.data.ablation import without_cot, without_iir
from tumorchain_jax.data.dataset import ModelScan, read_records
from tumorchain_jax.data.pipeline import (
    PAD_SEGMENT,
    Example,
    ExampleSource,
    Layout,
    batch_names,
    batches,
)
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.data.training_rows import training_rows
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.attention import Packing, one_sequence
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.reasoning.organ_cells import OrganCells, organ_cells
from tumorchain_jax.reasoning.prompt import TEXT, Interleaved

# A 2 x 2 x 2 token grid: one global token, then the cells.
ROI = RoiSpec(grid=(2, 2, 2), offset=1, slots=4, global_tokens=1)
LAYOUT = Layout(ROI, length=800, history="all")
SHAPES = {
    "volume": (np.uint8, (8, 16, 16)),
    "tokens": (np.int32, (800,)),
    "visual_index": (np.int32, (800,)),
    "loss_mask": (np.bool_, (800,)),
    "positions": (np.int32, (800,)),
    "segment_ids": (np.int32, (800,)),
    "roi_index": (np.int32, (57, 4)),
    "roi_valid": (np.bool_, (57, 4)),
    "abnormal": (np.int8, (57,)),
}
KINDS = pytest.mark.parametrize("initial_roi", [False, True], ids=["plain", "initial_roi"])
HISTORIES = pytest.mark.parametrize("history", ["all", "latest"])
TRAIN = ["phantom-0", "phantom-1", "phantom-2", "phantom-4", "phantom-5"]


@pytest.fixture(scope="module")
def folder(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digital patients, the fourth of them for testing."""
    folder = tmp_path_factory.mktemp("split") / "phantoms"
    shutil.copytree(phantoms, folder)
    write_split(folder, {"train": TRAIN, "test": ["phantom-3"]})
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> ExampleSource:
    return ExampleSource(folder, LAYOUT)


def stored_scan(source: ExampleSource, number: int) -> ModelScan:
    return ModelScan.from_bytes(source.scans[number])


def cells_of(source: ExampleSource, scan: int) -> OrganCells:
    return organ_cells(stored_scan(source, scan).labels, ROI)


def records_of(source: ExampleSource) -> list[Record]:
    return [record for group in source.groups for record in group]


def rows_alone(source: ExampleSource, record: Record) -> list[Interleaved]:
    """A record's questions, each as a row of its own."""
    layout = source.layout
    rois = cells_of(source, record.scan).rois()
    return training_rows(source.chat, record, 1, rois, layout.history, layout.initial_roi)


def questions_of(example: Mapping[str, np.ndarray]) -> Iterator[dict[str, list]]:
    """The prefix and each question in turn, cut out of a packed row, as a row of its own."""
    for segment_ids in range(1, example["segment_ids"].max() + 1):
        own = (example["segment_ids"] == 0) | (example["segment_ids"] == segment_ids)
        yield {
            name: example[name][own].tolist()
            for name in ("tokens", "visual_index", "loss_mask", "positions")
        }


def take(source: ExampleSource, seed: int, first_step: int, count: int) -> list[dict]:
    return list(islice(batches(source, 4, seed, first_step), count))


def assert_equal_batches(found: list[dict], expected: list[dict]) -> None:
    for left, right in zip(found, expected, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@KINDS
@HISTORIES
def test_row_holds_the_questions_of_a_scan_one_after_the_other(
    folder: Path, history: str, initial_roi: bool
) -> None:
    source = ExampleSource(folder, replace(LAYOUT, history=history, initial_roi=initial_roi))
    several = 0
    for index, group in enumerate(source.groups):
        example = source[index]
        assert {name: (x.dtype, x.shape) for name, x in example.items()} == SHAPES
        assert len({record.scan for record in group}) == 1
        scan = stored_scan(source, group[0].scan)
        np.testing.assert_array_equal(example["volume"], scan.image)
        np.testing.assert_array_equal(example["abnormal"], scan.abnormal)
        alone = [row for record in group for row in rows_alone(source, record)]
        several += len(alone) > 1
        for found, row in zip(questions_of(example), alone, strict=True):
            expected = {**vars(row), "positions": list(range(len(row)))}
            assert found == expected
        runs = example["segment_ids"][np.flatnonzero(np.diff(example["segment_ids"], prepend=-9))]
        assert runs.tolist() == [*range(len(alone) + 1), PAD_SEGMENT]
    assert several > 3


@HISTORIES
def test_first_token_of_a_question_and_pads_are_no_targets(folder: Path, history: str) -> None:
    """So the token before a target is the same question's, and predicts it."""
    source = ExampleSource(folder, replace(LAYOUT, history=history))
    for index in range(len(source)):
        example = source[index]
        targets = np.flatnonzero(example["loss_mask"])
        assert (example["segment_ids"][targets] > 0).all()
        segment_ids = example["segment_ids"]
        np.testing.assert_array_equal(segment_ids[targets], segment_ids[targets - 1])
        pads = example["segment_ids"] == PAD_SEGMENT
        assert (example["tokens"][pads] == source.chat.tokenizer.pad).all()
        assert (example["visual_index"][pads] == TEXT).all()


def test_row_takes_records_in_order_while_they_fit(folder: Path, source: ExampleSource) -> None:
    """To know it before the scan is read, every ROI counts as four cells."""
    records = [record for record in read_records(folder) if record.patient in TRAIN]
    rois = dict.fromkeys(range(1, 57), range(4))
    lengths = [len(training_rows(source.chat, r, 1, rois, "all")[0]) for r in records[:3]]
    three = sum(lengths) - 2 * len(source.prefix)
    for length, count in ((three, 3), (three - 1, 2)):
        shorter = ExampleSource(folder, replace(LAYOUT, length=length))
        assert shorter.groups[0] == records[:count]
        assert records_of(shorter) == records


@pytest.fixture(scope="module")
def model() -> Iterator[partial]:
    """(volume, tokens, bank rows, packing, ROI rows, ROI valid) -> logits, of a tiny model."""
    config = TumorChainConfig(
        encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
        decoder=Qwen2Config(512, 16, 32, 2, 2, 1, 8, True),
        roi_slots=4,
    )
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.2, leaf.shape).astype(np.float32)
    params = unflatten(jax.tree.map(draw, abstract_params(config)))
    with jax.default_matmul_precision("highest"):
        yield partial(jax.jit(TumorChain(config).apply), {"params": params})


def logits_of(model: partial, example: Example, packing: Packing) -> np.ndarray:
    fields = ("tokens", "visual_index", "roi_index", "roi_valid")
    volume = example["volume"][None].astype(np.float32) / 255
    tokens, visual_index, *rois = (example[name][None] for name in fields)
    return np.asarray(model(volume, tokens, visual_index, packing, *rois)[0][0])


@pytest.mark.program
@KINDS
@HISTORIES
def test_question_s_logits_are_those_of_a_row_of_its_own(
    folder: Path, model: partial, history: str, initial_roi: bool
) -> None:
    layout = replace(LAYOUT, history=history, initial_roi=initial_roi)
    source, whole = ExampleSource(folder, layout), one_sequence(1, LAYOUT.length)
    for index in [i for i, group in enumerate(source.groups) if len(group) > 1][:2]:
        example = source[index]
        packing = Packing(example["positions"][None], example["segment_ids"][None])
        packed = logits_of(model, example, packing)
        segment_ids = example["segment_ids"]
        for number, row in enumerate(questions_of(example), 1):
            n = len(row["tokens"])
            alone = {name: np.zeros_like(example[name]) for name in ("tokens", "visual_index")}
            for name, values in alone.items():
                values[:n] = row[name]
            expected = logits_of(model, example | alone, whole)[:n]
            found = packed[(segment_ids == 0) | (segment_ids == number)]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
            assert np.ptp(expected) > 1
        merged = logits_of(model, example, whole)
        assert np.abs(merged - packed)[segment_ids == 2].max() > 1e-3  # the first question is seen


def test_patients_for_testing_are_not_shown(source: ExampleSource, folder: Path) -> None:
    shown = {record.patient for group in source.groups for record in group}
    assert (
        shown == set(TRAIN) == {record.patient for record in read_records(folder)} - {"phantom-3"}
    )


def test_split_without_records_to_train_on_is_refused(phantoms: Path, tmp_path: Path) -> None:
    shutil.copytree(phantoms, tmp_path, dirs_exist_ok=True)
    write_split(tmp_path, {"train": [], "test": [*TRAIN, "phantom-3"]})
    with pytest.raises(InputError, match="records: found none to train on"):
        ExampleSource(tmp_path, LAYOUT)


@pytest.mark.parametrize(("cot", "iir"), [(False, True), (True, False), (False, False)])
def test_ablations_change_what_is_learned(
    folder: Path, source: ExampleSource, cot: bool, iir: bool
) -> None:
    ablated = ExampleSource(folder, replace(LAYOUT, cot=cot, iir=iir))
    expected = records_of(source)
    expected = expected if iir else list(map(without_iir, expected))
    expected = expected if cot else list(map(without_cot, expected))
    assert records_of(ablated) == expected
    tokens = ablated[0]["tokens"][ablated[0]["loss_mask"]].tolist()
    assert ("<think>" in ablated.chat.tokenizer.decode(tokens)) == cot


def test_roi_rows_point_past_the_global_tokens(source: ExampleSource) -> None:
    table = cells_of(source, 0)
    example = source[0]
    np.testing.assert_array_equal(example["roi_valid"], table.valid)
    np.testing.assert_array_equal(example["roi_index"][table.valid], table.cells[table.valid] + 1)
    rows = table.rois()
    assert set(rows) == set(np.unique(stored_scan(source, 0).labels)) - {0}
    assert min(map(min, rows.values())) >= 1
    assert max(map(max, rows.values())) <= 8
    assert example["visual_index"].max() <= 8


def test_epoch_shows_every_example_once(folder: Path) -> None:
    source = ExampleSource(folder, replace(LAYOUT, length=500))
    source.groups = source.groups[:8]  # two batches of four
    everything = sorted(source[i]["tokens"].tolist() for i in range(8))
    orders = []
    for epoch in range(2):
        batches = take(source, 0, 2 * epoch, 2)
        seen = [row for batch in batches for row in batch["tokens"].tolist()]
        assert sorted(seen) == everything
        orders.append(seen)
    assert orders[0] != orders[1]


def test_resuming_at_a_step_equals_coming_there_by_step(source: ExampleSource) -> None:
    expected = take(source, 5, 0, 7)
    for first_step in (0, 2, 6):
        assert_equal_batches(take(source, 5, first_step, 7 - first_step), expected[first_step:])


def test_order_depends_on_the_seed(source: ExampleSource) -> None:
    left, right = (take(source, seed, 0, 2) for seed in (0, 1))
    assert any((a["tokens"] != b["tokens"]).any() for a, b in zip(left, right, strict=True))


def test_batch_larger_than_the_data_is_filled(source: ExampleSource) -> None:
    batch = next(batches(source, 16, 0, 0))
    assert batch["volume"].shape == (16, 8, 16, 16)
    assert batch["tokens"].shape == (16, 800)


def test_record_longer_than_a_row_is_refused(folder: Path, source: ExampleSource) -> None:
    with pytest.raises(InputError, match=r"phantom-0: record: .* at most 40; raise config\.data"):
        ExampleSource(folder, replace(LAYOUT, length=40))
    crowded = ExampleSource(folder, LAYOUT)
    crowded.groups = [crowded.groups[0] * 4]
    with pytest.raises(InputError, match=r"phantom-0: record: .* at most 800"):
        crowded[0]


def test_looking_at_an_organ_without_a_voxel_is_refused(folder: Path) -> None:
    source = ExampleSource(folder, LAYOUT)
    hidden = min(set(range(1, 57)) - set(cells_of(source, 0).rois()))
    record = source.groups[0][0]
    last = replace(record.rounds[-1], look_at=(hidden,))
    source.groups[0][0] = replace(record, rounds=(record.rounds[0], last))
    with pytest.raises(InputError, match=r"phantom-0: look_at: found .* without a voxel"):
        source[0]


def test_question_s_turn_may_hold_the_organs_it_names(folder: Path, source: ExampleSource) -> None:
    early = ExampleSource(folder, replace(LAYOUT, initial_roi=True))
    start = source.chat.tokenizer.im_start
    shorter = 0
    for record in records_of(source):
        (now,), (later,) = (rows_alone(s, record) for s in (early, source))
        assert set(now.visual_index) >= set(later.visual_index)  # the same cells, then or before
        turns = [row.tokens.count(start) for row in (now, later)]
        assert turns[0] <= turns[1]
        shorter += turns[0] < turns[1]
    assert shorter


def test_names_of_a_batch_are_those_of_what_it_holds(source: ExampleSource) -> None:
    tokens = {
        name: source[i]["tokens"].tolist() for i, name in enumerate(map(source.name, range(4)))
    }
    told = 0
    for step, batch in enumerate(take(source, 5, 0, 2 * len(source)), 1):  # several epochs
        for name, row in zip(batch_names(source, 4, 5, step), batch["tokens"], strict=True):
            if name in tokens:
                assert row.tolist() == tokens[name]
                told += 1
    assert told >= 8


def test_packing_reports_what_it_saves(source: ExampleSource) -> None:
    found = re.fullmatch(
        r"(\d+) records in (\d+) rows of \d+ positions, (\d+)% used; with a row for each record it "
        r"would be ([\d.]+) times the tokens and ([\d.]+) times the positions",
        source.packing(),
    )
    assert found
    records = sum(len(group) for group in source.groups)
    assert (int(found[1]), int(found[2])) == (records, len(source))
    assert 0 < int(found[3]) <= 100
    assert float(found[5]) == pytest.approx(records / len(source), abs=0.05)
    assert 1 <= float(found[4]) <= float(found[5])
