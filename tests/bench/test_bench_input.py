"""Both sides of the input benchmark do the same: they make the same arrays."""

import json
from functools import partial

import pytest

from tumorchain_jax.bench import input as bench_module
from tumorchain_jax.bench import transformers_models
from tumorchain_jax.cli.main import main
from tumorchain_jax.scan.preprocess import PreprocessConfig


@pytest.mark.system
def test_both_make_the_same_arrays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("monai")
    small = partial(bench_module.bench_input, PreprocessConfig((8, 32, 32)), 1, 1, (2, 2, 1), 1)
    monkeypatch.setattr(bench_module, "bench_input", small)
    assert main(["bench", "input", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values.pop("voxels apart, at most") < 1e-4
    assert len(values) == 9
    assert all(value > 0 for value in values.values())


def test_without_monai_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(transformers_models, "find_spec", lambda name: None)
    assert main(["bench", "input"]) == 2
    assert "tumorchain-jax[parity]" in capsys.readouterr().err
