"""The plug, in a stand-in for the benchmark's runner: its base class, its `run`, its errors."""

import sys
from abc import ABC, abstractmethod
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa import evaluator
from tumorchain_jax.evaluation.deeptumorvqa.evaluator import build_evaluator
from tumorchain_jax.inference.analyzer import Analyzer

LONG = 60


class HFVLMEvaluator(ABC):
    """Asks as theirs does: an error becomes a text."""

    def __init__(self, model_id: str, device: str = "cuda", **kwargs: Any):
        self.model_id = model_id

    @abstractmethod
    def generate(self, prompt: str, images: Any = None, video_path: str | None = None) -> str: ...

    def run(self, asked: list[tuple[str, Any, str | None]]) -> list[str]:
        texts = []
        for prompt, images, path in asked:
            try:
                texts.append(self.generate(prompt, images=images, video_path=path))
            except Exception as error:
                texts.append(f"[ERROR] {type(error).__name__}: {error}")
        return texts


class Stub(Analyzer):
    """Says which scan it saw, and what it was asked."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def prepare(self, scan: Any, mask: Any = None, force: bool = False) -> Any:
        self.prepared.append(scan)
        return scan

    def check_question(self, text: str) -> None:
        if len(text) > LONG:
            raise InputError("question", "length", "long", "short", "ask less")

    def run(self, asked: Any, **_: Any) -> Any:
        return [SimpleNamespace(text=f"{case}|{text}") for case, text in asked]


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    module: Any = ModuleType(evaluator.RUNNER)
    module.HFVLMEvaluator = HFVLMEvaluator
    for name in ("deeptumorvqa", "deeptumorvqa.eval"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, evaluator.RUNNER, module)
    made = Stub()
    monkeypatch.setattr(Analyzer, "load", lambda checkpoint: made)
    return made


def args(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"model": "nano", "mode": "vqa", "input": "3d_volume", **changes})


def test_runner_gets_answers_about_the_ct(stub: Stub) -> None:
    made = build_evaluator(args())
    assert isinstance(made, HFVLMEvaluator)
    assert made.model_id == "nano"
    asked = [(f"question {n}", None, f"ct{n // 2}.nii.gz") for n in range(4)]
    assert made.run(asked) == [f"ct{n // 2}.nii.gz|question {n}" for n in range(4)]
    assert stub.prepared == ["ct0.nii.gz", "ct1.nii.gz"]


def test_context_that_does_not_fit_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    made = build_evaluator(args())
    prompt = f"{'context ' * 10}\nWhere is it?\nAnswer with a letter."
    (text,) = made.run([(prompt, None, "ct.nii.gz")])
    assert text == "ct.nii.gz|Where is it?\nAnswer with a letter."
    assert "first 1 lines" in capsys.readouterr().err
    (text,) = made.run([("why " * 40, None, "ct.nii.gz")])
    assert text.startswith("[ERROR] InputError: question")


def test_without_a_ct_there_is_an_error_and_no_answer() -> None:
    made = build_evaluator(args())
    texts = made.run([("q", None, None), ("q", ["slice"], None), ("q", None, "a.mp4")])
    assert all(text.startswith("[ERROR] InputError: runner: video_path") for text in texts)


def test_options_that_would_mislead_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, match in (
        ({"model": "Qwen/Qwen3-VL-4B-Instruct"}, "--model"),
        ({"input": "2d_image"}, "3d_volume"),
        ({"mode": "agent"}, "--mode vqa"),
    ):
        with pytest.raises(InputError, match=match):
            build_evaluator(args(**changes))
    monkeypatch.setitem(sys.modules, evaluator.RUNNER, None)
    with pytest.raises(InputError, match="install"):
        build_evaluator(args())
