"""Runs with stand-in agents: the same bytes whatever happens on the way."""

import json
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import stand_in_agents

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.core.files import locked
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data.record_file import RecordFile
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.engine.case import Case, CaseResult
from tumorchain_jax.engine.cases import read_cases
from tumorchain_jax.engine.run import work
from tumorchain_jax.engine.run.outputs import FILES, PAPER_SHARES
from tumorchain_jax.engine.run.run import Done, run
from tumorchain_jax.engine.run.status import status
from tumorchain_jax.engine.run.store import Head, Store, read_places, shard_of, shard_path

MakeCases = Callable[..., Path]
SETTINGS: Mapping[str, object] = {"seed": 0, "agents": {"reasoner": "rules"}}


def go(folder: Path, cases: Path, process: work.Process = stand_in_agents.say, **more) -> Done:
    with more.pop("workers", None) or local_workers(1) as workers:
        settings = more.pop("settings", SETTINGS)
        return run(folder, read_cases(cases), process, settings, workers, **more)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_writes_records_with_their_traces(make_cases: MakeCases, tmp_path: Path) -> None:
    done = go(tmp_path / "out", make_cases(40))
    # Every tenth report is of a normal CT, of which the stand-in makes nothing.
    assert (done.cases, done.records, done.rejected, done.failed) == (40, 36 * 5, 4, 0)
    assert contents(tmp_path / "out").keys() == {*FILES, "SHA256SUMS"}
    records, traces = (
        lines(tmp_path / "out" / "records.jsonl"),
        lines(tmp_path / "out" / "traces.jsonl"),
    )
    assert len(records) == len(traces) == 180
    text = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert [trace["record"] for trace in traces] == list(map(work.record_id, text))
    assert {record["scan"].replace("s", "c") for record in records} == {t["case"] for t in traces}
    assert {row["case"] for row in lines(tmp_path / "out" / "rejected.jsonl")} == {
        "c-5", "c-15", "c-25", "c-35",
    }  # fmt: skip
    assert len(lines(tmp_path / "out" / "discordant.jsonl")) == 10
    found = RecordFile(tmp_path / "out" / "records.jsonl", {f"s-{n}" for n in range(40)})
    assert sum(found.count(f"s-{n}") for n in range(40)) == 180
    assert not any(found.repeated(f"s-{n}") for n in range(40))


def test_bytes_do_not_depend_on_order_workers_or_earlier_runs(
    make_cases: MakeCases, tmp_path: Path
) -> None:
    path = make_cases(60)
    go(tmp_path / "one", path)
    rows = path.read_text().splitlines()
    path.write_text("\n".join(rows[:25]))
    go(tmp_path / "two", path)
    path.write_text("\n".join(reversed(rows)))
    done = go(tmp_path / "two", path, workers=ThreadPoolExecutor(4))
    assert done.already_done == 25
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.system(haste=True)
def test_bytes_do_not_depend_on_processes(make_cases: MakeCases, tmp_path: Path) -> None:
    path = make_cases(40)
    go(tmp_path / "one", path)
    go(tmp_path / "two", path, workers=local_workers(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_case_added_later_moves_no_patient(make_cases: MakeCases, tmp_path: Path) -> None:
    go(tmp_path / "out", make_cases(60))
    before = read_split(tmp_path / "out")
    make_cases(90)
    go(tmp_path / "out", tmp_path / "cases" / "cases.jsonl")
    after = read_split(tmp_path / "out")
    assert before["test"]
    assert all(before[side] <= after[side] for side in before)
    assert not after["train"] & after["test"]


def test_a_changed_report_is_worked_on_again_and_no_other(
    make_cases: MakeCases, tmp_path: Path
) -> None:
    path = make_cases(20)
    go(tmp_path / "out", path)
    (path.parent / "reports" / "c-3.txt").write_text("A hypodense mass of 99 mm in the liver.")
    worked: list[str] = []

    def noted(case: Case) -> CaseResult:
        worked.append(case.id)
        return stand_in_agents.say(case)

    assert go(tmp_path / "out", path, noted).already_done == 19
    assert worked == ["c-3"]
    sizes = {
        row["value"] for row in lines(tmp_path / "out" / "facts.jsonl") if row["case"] == "c-3"
    }
    assert "99" in sizes
    assert "13" not in sizes


def test_what_fails_is_set_aside_and_retried(make_cases: MakeCases, tmp_path: Path) -> None:
    path = make_cases(30)
    done = go(tmp_path / "out", path, stand_in_agents.stumble)
    assert (done.failed, done.rejected) == (3, 3)
    reasons = {row["reason"] for row in lines(tmp_path / "out" / "rejected.jsonl")}
    assert reasons == {"no lesion is described", "ValueError: a fault of the \\ud800 agents"}
    assert status(tmp_path / "out").failed == {"ValueError: a fault of the \\ud800 agents": 3}
    worked: list[str] = []

    def noted(case: Case) -> CaseResult:
        worked.append(case.id)
        return stand_in_agents.say(case)

    assert go(tmp_path / "out", path, noted).failed == 3
    assert worked == []
    assert go(tmp_path / "out", path, noted, retry=True).failed == 0
    assert sorted(worked) == ["c-15", "c-17", "c-25", "c-27", "c-5", "c-7"]
    go(tmp_path / "fresh", path)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_what_all_cases_lack_ends_the_run(make_cases: MakeCases, tmp_path: Path) -> None:
    for workers in (local_workers(1), ThreadPoolExecutor(2)):
        with pytest.raises(InputError, match="endpoint: model: found none"):
            go(tmp_path / "out", make_cases(5), stand_in_agents.give_up, workers=workers)
    assert go(tmp_path / "out", make_cases(5)).records == 25


def test_a_signal_ends_the_run_after_the_case_at_hand(
    make_cases: MakeCases, tmp_path: Path
) -> None:
    assert threading.current_thread() is threading.main_thread()
    path, worked = make_cases(30), []

    def asked_to_end(case: Case) -> CaseResult:
        worked.append(case.id)
        if len(worked) == 10:
            signal.raise_signal(signal.SIGTERM)
        return stand_in_agents.say(case)

    with pytest.raises(Stopped, match="after 10 of 30 cases"):
        go(tmp_path / "out", path, asked_to_end)
    assert len(worked) == 10
    assert status(tmp_path / "out").done == 10
    assert not status(tmp_path / "out").is_complete
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert go(tmp_path / "out", path).already_done == 10
    go(tmp_path / "fresh", path)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_folder_is_of_one_kind_of_run(make_cases: MakeCases, tmp_path: Path) -> None:
    path = make_cases(4)
    go(tmp_path / "out", path)
    with pytest.raises(InputError, match="seed: found 1, expected 0, as the run in this folder"):
        go(tmp_path / "out", path, settings={**SETTINGS, "seed": 1})
    with pytest.raises(InputError, match=r"agents\.reasoner: found 'llm', expected 'rules'"):
        go(tmp_path / "out", path, settings={"seed": 0, "agents": {"reasoner": "llm"}})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").touch()
    with pytest.raises(InputError, match="output: found something else"):
        go(tmp_path / "other", path)
    with (
        locked(tmp_path / "out" / ".engine" / "lock", tmp_path),
        pytest.raises(InputError, match="another process at work on it"),
    ):
        go(tmp_path / "out", path)
    with pytest.raises(InputError, match="expected a folder that `tumorchain engine run` wrote"):
        status(tmp_path)


def test_a_full_disk_is_told_and_nothing_is_lost(
    make_cases: MakeCases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, append = make_cases(20), Store.append

    def full(store: Store, head: Head, more: object) -> None:
        if head.case == "c-9":
            raise OSError(28, "No space left on device")
        append(store, head, more)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", full)
        with pytest.raises(InputError, match="output: found No space left on device") as error:
            go(tmp_path / "out", path)
    assert "\n" not in str(error.value)
    assert 0 < status(tmp_path / "out").done < 20
    go(tmp_path / "out", path)
    go(tmp_path / "fresh", path)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("cut", [1, 12, 40, 400])
def test_a_frame_that_was_cut_short_is_made_again(
    cut: int, make_cases: MakeCases, tmp_path: Path
) -> None:
    path = make_cases(8)
    go(tmp_path / "out", path)
    before = contents(tmp_path / "out")
    shard = shard_path(tmp_path / "out", shard_of("c-3"))
    shard.write_bytes(shard.read_bytes()[:-cut])
    done = go(tmp_path / "out", path)
    assert (done.already_done, done.warnings) == (7, ())
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("place", [0, 5, 20, -5])
def test_a_damaged_frame_is_put_aside_and_made_again(
    place: int, make_cases: MakeCases, tmp_path: Path
) -> None:
    path = make_cases(8)
    go(tmp_path / "out", path)
    before = contents(tmp_path / "out")
    shard = shard_path(tmp_path / "out", shard_of("c-3"))
    content = bytearray(shard.read_bytes())
    content[place] ^= 1
    shard.write_bytes(content)
    done = go(tmp_path / "out", path)
    assert contents(tmp_path / "out") == before
    if place == -5:  # whole by its sizes, wrong by its checksum
        assert "damaged results of earlier runs were put aside" in done.warnings[0]
        assert shard.with_suffix(".damaged").read_bytes() == content


def test_of_two_frames_of_a_case_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "cases" / "00.frames"
    for attempt in (1, 2):
        with Store(path) as store:
            store.append(Head("c", "d", attempt), {"records": ["x" * attempt]})
    with Store(path) as store:
        assert store.heads == {"c": Head("c", "d", 2)}
    assert [place.head.attempt for place in read_places(path)] == [1, 2]


def test_the_papers_mix_of_tasks(make_cases: MakeCases, tmp_path: Path) -> None:
    path = make_cases(120)
    natural = go(tmp_path / "out", path)
    mixed = go(tmp_path / "out", path, mix="paper")
    assert mixed.already_done == 120
    records = lines(tmp_path / "out" / "records.jsonl")
    assert len(records) == mixed.records == natural.records - mixed.thinned
    assert len(lines(tmp_path / "out" / "traces.jsonl")) == len(records)
    for task, share in PAPER_SHARES.items():
        found = sum(record["task"] == task for record in records) / len(records)
        assert abs(found - share) < 0.005
    assert go(tmp_path / "out", path).records == natural.records


def test_a_mix_without_records_of_a_task_is_refused(make_cases: MakeCases, tmp_path: Path) -> None:
    def few(case: Case) -> CaseResult:
        result = stand_in_agents.say(case)
        return CaseResult(result.facts, result.records[:1], result.traces[:1])

    with pytest.raises(
        InputError, match="--mix paper: found no record of lesion_attributes, cot_rep"
    ):
        go(tmp_path / "out", make_cases(3), few, mix="paper")
    assert go(tmp_path / "out", make_cases(3), few).records == 3
