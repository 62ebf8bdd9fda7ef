"""Scoring and judging run where JAX is not: only what asks a model imports it."""

import subprocess
import sys

import pytest


@pytest.mark.system
def test_scores_and_judges_import_no_jax() -> None:
    names = ("score", "compare", "simulation", "kept", "paper", "chain.run", "chain.open_judge",
             "chain.calibrate", "chain.text_metrics")  # fmt: skip
    imports = "; ".join(f"import tumorchain_jax.evaluation.{name}" for name in names)
    code = f"import sys; {imports}; print([m for m in ('jax', 'flax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
