"""`tumorchain calibrate`, with made-up answers in place of a model's."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.weights.measured import Measured, read_measured
from tumorchain_jax.weights.scores import DIGITAL, DomainScores

SHA = "ab" * 32


@pytest.fixture
def calibrated(scripted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command over answers of which nine in ten are right if the model is sure."""

    def ask(*_: Any, **__: Any) -> list[Item]:
        sure = np.random.default_rng(0).uniform(size=400) < 0.5
        right = np.random.default_rng(1).uniform(size=400) < np.where(sure, 0.9, 0.2)
        asked = "position", "tumor_position", "", "Where is the tumour?", (), "liver", "liver", ""
        logs = np.where(sure, -0.01, -0.5).tolist()
        flags = right.tolist()
        return [Item(f"p{n % 40}", *asked, flags[n], None, logs[n]) for n in range(400)]

    def run(folder: Path, measured: Measured, *words: str) -> int:
        analyzer = scripted(lambda *_: "")
        analyzer.checkpoint = SimpleNamespace(sha256=SHA, measured=measured)
        monkeypatch.setattr(Analyzer, "load", lambda *_, **__: analyzer)
        monkeypatch.setattr("tumorchain_jax.evaluation.calibrate.ask", ask)
        return main(["calibrate", "-c", str(folder), *words])

    return run


def test_calibrate_writes_what_reports_apply(
    calibrated: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrated(tmp_path, Measured(), "--phantoms", "40", "--threshold", "0.6") == 0
    printed = capsys.readouterr().out
    assert "expected calibration error after" in printed
    found = read_measured(tmp_path, SHA).calibration
    assert found
    assert (found.seeds, found.threshold, found.n) == ((5_000_000, 40), 0.6, 400)
    sure, unsure = found.kinds["organ"].confidence(np.array([-0.01, -0.5]))
    assert sure == pytest.approx(0.9, abs=0.05)
    assert unsure == pytest.approx(0.2, abs=0.06)
    assert found.ece_after[0] < 5 < found.ece_before[0]
    assert found.coverage[0] == pytest.approx(50, abs=6)
    assert "<circle" in (tmp_path / "reliability.svg").read_text()
    assert calibrated(tmp_path, Measured(), "--phantoms", "40", "--json") == 0
    assert json.loads(capsys.readouterr().out)["threshold"] == 0.5


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--seed", "1000005"], "share patients with training (1000000 to 1000009)"),
        (["--seed", "1999900"], "share patients with evaluation (2000000 to 2000009)"),
        (["--threshold", "1.5"], "--threshold: found 1.5, expected 0 to 1"),
        (["--phantoms", "0"], "--phantoms: found 0, expected 1 to 1000000"),
    ],
)
def test_calibrate_refuses_in_one_line(
    words: list[str],
    found: str,
    calibrated: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    domains = {DIGITAL: DomainScores("some", 10, (2_000_000, 10), {})}
    assert calibrated(tmp_path, Measured(domains, None, ((1_000_000, 10),)), *words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error
    assert not [*tmp_path.iterdir()]
