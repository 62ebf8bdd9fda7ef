"""RadEval in its own process: a stand-in with its interface, as it cannot be installed here."""

import sys
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.chain.rad_eval import rad_eval

STAND_IN = """
class RadEval:
    def __init__(self, metrics, per_sample):
        assert per_sample
        self.metrics = metrics

    def __call__(self, refs, hyps):
        print("noise on stdout")
        if "broken" in self.metrics:
            raise RuntimeError("no weights")
        if "short" in self.metrics:
            return {"short": [1.0]}
        same = [float(a == b) for a, b in zip(refs, hyps)]
        return {name: same for name in self.metrics}
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "radeval.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Path(sys.executable)


@pytest.mark.system
def test_texts_go_out_and_numbers_come_back(python: Path) -> None:
    version, scores = rad_eval(python, ["radgraph"], ["a \u2028 b", "c"], ["a \u2028 b", "d"])
    assert scores == {"radgraph": [1.0, 0.0]}
    assert version == "of no known version"
    for metric, said in (("broken", "RuntimeError: no weights"), ("short", "short: 1")):
        with pytest.raises(InputError, match=said):
            rad_eval(python, [metric], ["a", "b"], ["a", "b"])


@pytest.mark.system
def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(InputError, match=r"found no radeval.*pip install radeval"):
        rad_eval(Path(sys.executable), ["bleu"], ["a"], ["a"])
    with pytest.raises(InputError, match="check the path"):
        rad_eval(Path("nowhere/python"), ["bleu"], ["a"], ["a"])
