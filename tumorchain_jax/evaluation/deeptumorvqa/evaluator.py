"""A plug for the benchmark's own runner, so that a model here is asked in its own words.

    deeptumorvqa-eval --backend custom --mode vqa --input 3d_volume --model nano \\
        --custom-module tumorchain_jax.evaluation.deeptumorvqa.evaluator ...

`--model` is `nano` or the folder of a checkpoint; organs are segmented. The runner is the user's to
install. Its file of results is read by `tumorchain deeptumorvqa score` as well.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer, PreparedCase

NANO = "nano"
RUNNER = "deeptumorvqa.eval.vqa_evaluator"
CT_ENDINGS = (".nii.gz", ".nii")


def build_evaluator(args: Any) -> Any:
    """Make the evaluator that the runner asks for.

    Args:
        args: its options; `model`, `mode` and `input` are read.

    Returns:
        An instance of the runner's own base class, whose `run` asks `generate`.

    Raises:
        InputError: the runner is not installed, or its options ask for what is not here.
    """
    mode, shown = getattr(args, "mode", "vqa"), getattr(args, "input", None)
    if mode != "vqa" or shown not in (None, "3d_volume"):
        hint = "add --mode vqa --input 3d_volume"
        raise InputError("runner", "--input", f"{mode}, {shown}", "a whole CT", hint)
    model = str(getattr(args, "model", ""))
    if model != NANO and not Path(model).is_dir():
        hint = "name what is evaluated: the runner's table would show its default model"
        raise InputError("runner", "--model", model, "nano, or a model folder", hint)
    try:
        base = importlib.import_module(RUNNER).HFVLMEvaluator
    except ImportError as error:
        hint = "install the benchmark's package"
        raise InputError("runner", RUNNER, str(error), "the benchmark's runner", hint) from error
    answers = Generator(Analyzer.load(None if model == NANO else Path(model)))
    return type("TumorChainEvaluator", (base,), {"generate": answers.generate})(model)


class Generator:
    """Answers prompts about CTs; the last CT stays prepared, for its questions come together."""

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self._last: tuple[str, PreparedCase] | None = None
        self._said = False

    def generate(self, prompt: str, images: Any = None, video_path: str | None = None) -> str:
        """Return the whole text of the last round.

        Args:
            images: of slices; they cannot stand for HU, and are refused.
            video_path: the CT, a NIfTI file.

        Raises:
            InputError: there is no CT, or the prompt's question is too long; the runner keeps it
                as an error.
        """
        if images or not str(video_path or "").endswith(CT_ENDINGS):
            found = "pictures" if images else str(video_path)
            raise InputError("runner", "video_path", found, "a NIfTI file", "--input 3d_volume")
        assert video_path is not None
        if self._last is None or self._last[0] != video_path:
            self._last = video_path, self.analyzer.prepare(video_path, force=True)
        return self.analyzer.run([(self._last[1], self._fitting(prompt))])[0].text

    def _fitting(self, prompt: str) -> str:
        """Drop lines of context from the front until the question fits the model."""
        lines = prompt.splitlines()
        for first in range(len(lines)):
            text = "\n".join(lines[first:])
            try:
                self.analyzer.check_question(text)
            except InputError:
                if first == len(lines) - 1:
                    raise
                continue
            if first and not self._said:
                self._said = True
                note = f"tumorchain: the first {first} lines of a prompt do not fit the model"
                print(note, file=sys.stderr)
            return text
        raise InputError("runner", "prompt", "nothing", "a question", "check the question file")
