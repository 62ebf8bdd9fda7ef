"""`tumorchain judge` and `tumorchain compare`, as a user calls them."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stub_judge import completion, judgement, stub

from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.chain.bars import FEWEST
from tumorchain_jax.evaluation.chain.cases import draw_truth
from tumorchain_jax.evaluation.chain.rubric import NAMES
from tumorchain_jax.evaluation.items import Item, json_lines, make_item
from tumorchain_jax.phantoms.records import patient_records

TUMORCHAIN = [sys.executable, "-m", "tumorchain_jax.cli.main"]


def items(patients: int) -> list[Item]:
    """Truth as answers; each question of a patient once."""
    found = [
        make_item(record, record.rounds[-1].text, chain=record.reasoning)
        for seed in range(patients)
        for record in patient_records(draw_truth(seed), 0)
    ]
    return list({(item.patient, item.question): item for item in found}.values())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text(json_lines(items(2)))
    return path


def test_judge_and_score_again(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["judge", "-i", str(saved), "-o", str(out), "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["cot_e"]["mean"] == 100
    assert main(["judge", "--rescore", str(out), "--json"]) == 0
    assert capsys.readouterr().out == printed
    judged = str(out / "judged.jsonl")
    assert main(["compare", judged, judged, "--strict"]) == 0
    assert "cot_e" in capsys.readouterr().out
    assert main(["compare", str(saved), str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["p"] == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["judge"], "-i, --rescore"),
        (
            ["judge", "-i", "missing.jsonl"],
            "found No such file or directory, expected the items.jsonl",
        ),
        (["judge", "-i", "SAVED", "--by", "magic"], "expected rules, or: endpoint NAME"),
        (["judge", "-i", "SAVED", "--by", "endpoint", "x"], "endpoints.toml"),
        (["judge", "--rescore", "nowhere"], "name a folder that `tumorchain judge -o` wrote"),
        (["judge", "--rescore", "nowhere", "-o", "x"], "--output: found given"),
        (["judge", "-i", "SAVED", "calibrate"], "--input: found given"),
        (["judge", "agree", "nowhere"], "of one items.jsonl"),
        (["compare", "SAVED"], "two files"),
        (["compare", "SAVED", "SAVED", "--simulate", "3"], "--simulate: found runs as well"),
        (["compare", "SAVED", "missing.jsonl"], "check the path"),
    ],
)
def test_bad_usage_is_one_line(
    saved: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main([str(saved) if word == "SAVED" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.splitlines()) == 1


def test_the_tests_own_simulation_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--simulate", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["draws"] for row in rows.values()] == [3, 3]


@pytest.mark.system
def test_the_rules_pass_every_bar(tmp_path: Path) -> None:
    command = [
        *TUMORCHAIN,
        "judge",
        "calibrate",
        "--phantoms",
        str(FEWEST),
        "-o",
        str(tmp_path / "c.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2].endswith("bars met: PASSED")
    values = json.loads((tmp_path / "c.json").read_text())
    assert values["passed"]
    assert values["failed"] == 0
    aucs = [row["value"] for row in values["rows"] if row["group"] == "one wrong fact"]
    assert aucs == [1.0] * 12


@pytest.mark.system
def test_a_killed_run_is_resumed_and_its_failures_are_exact(tmp_path: Path) -> None:
    """5 % of the chains get replies that are broken in 12 ways; the run is killed and resumed."""
    saved, out = tmp_path / "items.jsonl", tmp_path / "out"
    saved.write_text(json_lines(items(30)))
    good = judgement(dict.fromkeys(NAMES, 8))
    nines = dict.fromkeys(NAMES, 9)
    ways = [
        completion(""), completion(f"```\n{good}\n"), completion("Good."),
        completion(good.replace("8", "NaN", 1)), completion(good.replace("8", "1e999", 1)),
        completion(good.replace('"accuracy": 8', '"accuracy": 8, "accuracy": 1')),
        completion(judgement({**nines, "accuracy": "9/5"}, total=90)),
        completion(judgement({**nines, "accuracy": 11})), completion(good[:-9], "length"),
        (500, b"{}"), (429, b"{}"), completion("", refusal="No."),
    ]  # fmt: skip
    transient = (9, 10)
    numbers: dict[str, int] = {}
    answered: Counter[tuple[str, int | None]] = Counter()
    holding, guard = threading.Event(), threading.Lock()
    first_run = True

    def answer(asked: dict[str, Any], before: int) -> tuple[int, bytes]:
        data = asked["messages"][1]["content"]
        key = data.partition("A reply to this was refused")[0].strip()
        with guard:
            number = numbers.setdefault(key, len(numbers))
            late = first_run and sum(answered.values()) >= 60
        if late:  # nothing more is answered until the process is killed
            holding.wait(30)
            return 500, b"{}"
        way = number // 20 % 12 if number % 20 == 0 else None
        if way in transient and before == 0:
            return ways[way]
        with guard:
            answered[data, asked.get("seed")] += 1  # a redraw has a seed of its own
        return completion(good) if way is None or way in transient else ways[way]

    with stub(answer) as (url, _):
        config = tmp_path / "endpoints.toml"
        config.write_text(
            f'[endpoint.stub]\nurl = "{url}"\nmodel = "stub"\nschema = "json_schema"\n'
            "concurrency = 4\n"
        )
        command = [*TUMORCHAIN, "judge", "-i", str(saved), "-o", str(out), "--by", "endpoint",
                   "stub", "--endpoints", str(config), "--subject", "nano", "--json"]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while sum(answered.values()) < 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)  # for the last replies to be on the disk
        process.send_signal(signal.SIGKILL)
        process.wait()
        first_run = False
        holding.set()
        assert sum(answered.values()) >= 60
        done = subprocess.run([*command, "--strict"], capture_output=True, text=True)
    values = json.loads(done.stdout)
    broken = {n // 20 % 12 for n in numbers.values() if n % 20 == 0} - set(transient)
    hit = [n for n in numbers.values() if n % 20 == 0 and n // 20 % 12 not in transient]
    assert len(broken) == 10
    repeated = values["asked"] - len(numbers)  # some questions are the same to the letter
    assert len(hit) <= values["failed"]["n"] <= len(hit) + repeated
    assert values["failed"]["n"] + values["judged"] == values["asked"]
    assert values["cot_e"]["mean"] == 80
    low, high = values["cot_e"]["bounds"]
    assert low < 80 < high
    assert max(answered.values()) == 1
    assert done.returncode == (0 if values["usable"] else 1)
    assert not values["usable"]
