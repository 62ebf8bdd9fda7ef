"""RadEval's metrics of radiology text, in a Python of their own.

They need PyTorch and weights that are downloaded, so the package is the user's to install into an
environment apart; what is sent to it are texts, and what comes back are numbers.
"""

import json
import subprocess
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError

LOWER_IS_BETTER = ("radcliq",)
_NO_PACKAGE = "No module named 'radeval'"
_PROGRAM = """
import contextlib, importlib.metadata, json, sys
asked = json.load(sys.stdin)
with contextlib.redirect_stdout(sys.stderr):
    import radeval
    scores = radeval.RadEval(metrics=asked["metrics"], per_sample=True)(
        refs=asked["refs"], hyps=asked["hyps"]
    )
try:
    version = importlib.metadata.version("radeval")
except importlib.metadata.PackageNotFoundError:
    version = "of no known version"
plain = {name: [float(each) for each in found] for name, found in scores.items()}
print(json.dumps({"version": version, "scores": plain}))
"""


def rad_eval(
    python: Path, metrics: Sequence[str], references: Sequence[str], texts: Sequence[str]
) -> tuple[str, dict[str, list[float]]]:
    """Score texts beside their references.

    Args:
        python: interpreter of an environment that has `radeval`.
        metrics: of its registry, such as `radgraph` or `f1radbert_ct`.

    Returns:
        the package's version, and by its names a number for each text.

    Raises:
        InputError: there is no such interpreter, it has no `radeval`, or it fails.
    """
    asked = {"metrics": [*metrics], "refs": [*references], "hyps": [*texts]}
    try:
        done = subprocess.run(
            [python, "-c", _PROGRAM], input=json.dumps(asked), capture_output=True, text=True
        )
    except OSError as error:
        found, expected = error.strerror or str(error), "an interpreter of Python"
        raise InputError(python, "--rad-eval", found, expected, "check the path") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}"
        if _NO_PACKAGE in done.stderr:
            hint = f"{python} -m pip install radeval, in an environment of its own"
            raise InputError(python, "--rad-eval", "no radeval", "the package", hint)
        hint = "try the metric there by itself"
        expected = f"scores by {', '.join(metrics)}"
        raise InputError(python, "--rad-eval", last, expected, hint)
    return _read(python, done.stdout, len(texts))


def _read(python: Path, printed: str, count: int) -> tuple[str, dict[str, list[float]]]:
    try:
        values: Any = json.loads(printed)
        version, scores = str(values["version"]), dict(values["scores"])
        sound = all(len(each) == count and all(map(isfinite, each)) for each in scores.values())
    except (ValueError, TypeError, KeyError) as error:
        found, hint = repr(printed[:80]), "take the radeval that is on PyPI (2.2.1)"
        raise InputError(python, "--rad-eval", found, "scores as JSON", hint) from error
    if not sound or not scores:
        found = ", ".join(f"{name}: {len(each)}" for name, each in scores.items()) or "none"
        expected, hint = f"{count} finite numbers of each metric", "leave that metric out"
        raise InputError(python, "--rad-eval", found, expected, hint)
    return version, scores
