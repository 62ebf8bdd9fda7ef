"""Judges of the same chains: alpha as published, medians, refusals."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.chain.judged import Judged, to_lines
from tumorchain_jax.evaluation.chain.rubric import NAMES


def chain(number: int, mark: int | None, agrees: bool = True) -> Judged:
    judged = mark is not None
    return Judged(
        f"p{number}", 0, "shape", "q?", (), "round", "judged" if judged else "failed",
        "" if judged else "invalid: x", dict.fromkeys(NAMES, mark or 0) if judged else None,
        agrees if judged else None, True, None,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., str]:
    """Write what a stub judge made of chains: a mark for each, None where it failed."""

    def make(judge: str, marks: list[int | None], items: str = "a", **changes: object) -> str:
        path = tmp_path / judge.split(",")[0]
        path.mkdir(exist_ok=True)
        rows = [replace(chain(n, m, bool(m and m > 4)), **changes) for n, m in enumerate(marks)]
        (path / "judged.jsonl").write_text(to_lines(rows))
        (path / "score.json").write_text(json.dumps({"run": {"judge": judge, "items": items}}))
        return str(path)

    return make


def test_judges_of_two_families_are_compared(
    folder: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    marks: list[int | None] = [n % 11 for n in range(40)]
    higher = [m if m is None else min(m + 1, 10) for m in marks]
    runs = [
        folder("qwen3-8b, prompt a", marks),
        folder("llama-70b, prompt a", [*higher[:39], None]),
    ]
    assert main(["judge", "agree", *runs, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["families"], values["asked"], values["marked_by_all"]) == (2, 40, 39)
    assert 0.9 < values["alpha"]["cot_e"]["value"] < 1
    assert values["alpha"]["depth"] == values["alpha"]["cot_e"]
    assert values["alpha"]["depth"]["ci95"][0] < values["alpha"]["depth"]["value"]
    (pair,) = values["pairs"]
    assert pair["difference"] == pytest.approx(-10 * 36 / 39, abs=0.2)
    assert not pair["usable"]  # one of 40 failed: more than 2 %
    assert values["median"]["n"] == 39
    assert main(["judge", "agree", *runs]) == 0
    text = capsys.readouterr().out
    assert "39 marked by all of 2 judges" in text
    assert "ONE FAMILY" not in text
    assert "UNUSABLE" in text


def test_the_median_of_three_is_not_moved_by_one(
    folder: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [folder(f"qwen-{n}", [mark] * 3) for n, mark in enumerate((7, 8, 0))]
    assert main(["judge", "agree", *runs, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["median"]["mean"], values["families"]) == (70, 1)
    assert main(["judge", "agree", *runs]) == 0
    text = capsys.readouterr().out
    assert "ONE FAMILY" in text
    assert "fewer than 20 patients" in text


@pytest.mark.parametrize(
    ("judge", "items", "changes", "said"),
    [
        ("a", "a", {}, "a twice"),
        ("b", "other", {}, "expected the chains that a judged"),
        ("b", "a", {"question": "another?"}, "expected the chains that a judged"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    folder: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    judge: str,
    items: str,
    changes: dict[str, object],
    said: str,
) -> None:
    first = folder("a", [1, 2])
    Path(first).rename(tmp_path / "first")
    other = folder(judge, [1, 2], items, **changes)
    assert main(["judge", "agree", str(tmp_path / "first"), other]) == 2
    assert said in capsys.readouterr().err
    assert main(["judge", "agree", other]) == 2
    assert "two or more" in capsys.readouterr().err
