from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.data.chat import TEXT, training_rows
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.data.pipeline import ExampleSource, Layout, batches
from tumorchain_jax.errors import InputError
from tumorchain_jax.scan.organ_cells import organ_cells

# A 2 x 2 x 2 token grid: one global token in the bank, then the cells.
LAYOUT = Layout(
    roi_grid=(2, 2, 2),
    roi_offset=1,
    roi_slots=4,
    global_tokens=1,
    rows=3,
    length=400,
    history="all",
)
SHAPES = {
    "volume": (np.uint8, (8, 16, 16)),
    "tokens": (np.int32, (3, 400)),
    "bank_rows": (np.int32, (3, 400)),
    "is_target": (np.bool_, (3, 400)),
    "roi_rows": (np.int32, (57, 4)),
    "roi_valid": (np.bool_, (57, 4)),
    "abnormal": (np.int8, (57,)),
}


@pytest.fixture(scope="module")
def source(phantoms: Path) -> ExampleSource:
    return ExampleSource(phantoms, LAYOUT)


def stored_scan(source: ExampleSource, number: int) -> ModelScan:
    return ModelScan.from_bytes(source.scans[source.records[number].scan])


def rows_of(tokens: np.ndarray) -> list[list[int]]:
    """The rows of examples that hold a question."""
    return [row for row in tokens.reshape(-1, LAYOUT.length).tolist() if any(row)]


def take(source: ExampleSource, seed: int, first_step: int, count: int) -> list[dict]:
    return list(islice(batches(source, 4, seed, first_step), count))


def assert_equal_batches(found: list[dict], expected: list[dict]) -> None:
    for left, right in zip(found, expected, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.parametrize("history", ["all", "latest"])
def test_every_example_has_the_same_shapes(phantoms: Path, history: str) -> None:
    source = ExampleSource(phantoms, replace(LAYOUT, history=history))
    for number in range(len(source)):
        example = source[number]
        assert {name: (x.dtype, x.shape) for name, x in example.items()} == SHAPES


def test_an_example_is_a_scan_and_rows_of_its_own(source: ExampleSource) -> None:
    assert len(source) == 12  # four records of each of six scans, three at most to an example
    for index, group in enumerate(source.groups):
        scan = stored_scan(source, group[0][0])
        example = source[index]
        np.testing.assert_array_equal(example["volume"], scan.image)
        np.testing.assert_array_equal(example["abnormal"], scan.abnormal)
        roi_rows = organ_cells(scan.labels, (2, 2, 2), 4).bank_rows(1)
        for q, (number, _) in enumerate(group):
            assert source.records[number].scan == source.records[group[0][0]].scan
            (row,) = training_rows(source.chat, source.records[number], 1, roi_rows, "all")
            n = len(row)
            assert example["tokens"][q, :n].tolist() == row.tokens
            assert example["bank_rows"][q, :n].tolist() == row.bank_rows
            assert example["is_target"][q, :n].tolist() == row.is_target
            assert (example["tokens"][q, n:] == source.chat.tokenizer.pad).all()
            assert (example["bank_rows"][q, n:] == TEXT).all()
            assert not example["is_target"][q, n:].any()
        assert not example["is_target"][len(group) :].any()
        assert (example["bank_rows"][len(group) :] == TEXT).all()


def test_each_round_is_a_row_with_the_latest_history(phantoms: Path) -> None:
    source = ExampleSource(phantoms, replace(LAYOUT, history="latest", rows=2))
    rounds = [sum(not target.given for target in record.rounds) for record in source.records]
    rows = [row for group in source.groups for row in group]
    assert sorted(rows) == [(number, r) for number, n in enumerate(rounds) for r in range(n)]
    assert sum(rounds) > len(source.records)
    for index, group in enumerate(source.groups):
        example = source[index]
        assert len({source.records[number].scan for number, _ in group}) == 1
        assert example["is_target"].any(axis=1).sum() == len(group)


def test_roi_rows_point_past_the_global_tokens(source: ExampleSource) -> None:
    scan = stored_scan(source, 0)
    table = organ_cells(scan.labels, (2, 2, 2), 4)
    example = source[0]
    np.testing.assert_array_equal(example["roi_valid"], table.valid)
    np.testing.assert_array_equal(example["roi_rows"][table.valid], table.cells[table.valid] + 1)
    rows = table.bank_rows(1)
    assert set(rows) == set(np.unique(scan.labels)) - {0}
    assert min(map(min, rows.values())) >= 1
    assert max(map(max, rows.values())) <= 8
    assert example["bank_rows"].max() <= 8


def test_an_epoch_shows_every_row_once(source: ExampleSource) -> None:
    everything = sorted(row for i in range(12) for row in rows_of(source[i]["tokens"]))
    assert len(everything) == 24
    orders = []
    for epoch in range(2):
        seen = [row for batch in take(source, 0, 3 * epoch, 3) for row in rows_of(batch["tokens"])]
        assert sorted(seen) == everything
        orders.append(seen)
    assert orders[0] != orders[1]


def test_resuming_at_a_step_equals_coming_there_by_step(source: ExampleSource) -> None:
    expected = take(source, 5, 0, 7)
    for first_step in (0, 2, 6):
        assert_equal_batches(take(source, 5, first_step, 7 - first_step), expected[first_step:])


def test_the_order_depends_on_the_seed(source: ExampleSource) -> None:
    left, right = (take(source, seed, 0, 2) for seed in (0, 1))
    assert any((a["tokens"] != b["tokens"]).any() for a, b in zip(left, right, strict=True))


def test_a_batch_larger_than_the_data_is_filled(source: ExampleSource) -> None:
    stream: Iterator = batches(source, 16, 0, 0)
    assert next(stream)["volume"].shape == (16, 8, 16, 16)
    assert next(stream)["tokens"].shape == (16, 3, 400)


def test_a_record_longer_than_a_row_is_refused(phantoms: Path) -> None:
    source = ExampleSource(phantoms, replace(LAYOUT, length=40))
    with pytest.raises(InputError, match=r"phantom-0: record: .* at most 40; raise config\.data"):
        source[0]
    with pytest.raises(InputError, match="at most 40"):
        next(batches(source, 2, 0, 0))


def test_looking_at_an_organ_without_a_voxel_is_refused(source: ExampleSource) -> None:
    row = source.groups[0][0]
    with pytest.raises(InputError, match=r"phantom-0: look_at: found .* without a voxel"):
        source._row(source.records[row[0]], row[1], {})


def test_the_question_s_turn_may_hold_the_organs_it_names(
    phantoms: Path, source: ExampleSource
) -> None:
    early = ExampleSource(phantoms, replace(LAYOUT, initial_roi=True))
    start = source.chat.tokenizer.im_start
    shorter = set()
    for index, group in enumerate(source.groups):
        visual = [(s[index]["bank_rows"] != TEXT).sum(axis=1) for s in (early, source)]
        np.testing.assert_array_equal(*visual)  # the same cells, in the question or later
        turns = [(s[index]["tokens"] == start).sum(axis=1) for s in (early, source)]
        for q, (number, _) in enumerate(group):
            if turns[0][q] < turns[1][q]:
                shorter.add(number)
    assert shorter == {n for n, record in enumerate(source.records) if record.organ}


def test_rounds_that_the_question_s_organs_make_one_leave_no_row(phantoms: Path) -> None:
    """One row for each round is made room for; where the rounds join, the later stay empty."""
    layout = replace(LAYOUT, history="latest", initial_roi=True)
    source = ExampleSource(phantoms, layout)
    asked = 0
    for index, group in enumerate(source.groups):
        filled = source[index]["is_target"].any(axis=1)
        for q, (number, row) in enumerate(group):
            named = bool(source.records[number].organ)
            asked += named
            assert filled[q] == (row == 0 or not named)
    assert asked
