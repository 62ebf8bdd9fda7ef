"""A small made-up report: 8 x 4 x 4 cells over a grid of 16 x 32 x 32 voxels."""

from collections.abc import Callable

import numpy as np
import pytest

from tumorchain_jax.reasoning.trace import OrganMention, Round, StopReason, Trace
from tumorchain_jax.report.report import Report
from tumorchain_jax.scan.preprocess import GridTransform

CELLS, GRID = (8, 4, 4), (16, 32, 32)
# Axes to superior (4.5 mm), posterior (1.5 mm) and the patient's left (2 mm).
TO_WORLD = np.array([[0, 0, -2.0, 31], [0, -1.5, 0, 120], [4.5, 0, 0, -200], [0, 0, 0, 1]])
ANSWER = "<think>The liver and the spleen look normal.</think> Conclusion: no lesion."


@pytest.fixture
def make_report() -> Callable[..., Report]:
    def make(*rounds: Round, stop_reason: StopReason = "no_new_organ", **changes: object) -> Report:
        liver = OrganMention(5, "liver", "liver", (11, 16), "looked_at", (0, 17), 0.25)
        first = Round(ANSWER, (liver,), 300, 40, True, -0.5)
        fields = {
            "question": "Is there a lesion?",
            "answer": ANSWER,
            "conclusion": "no lesion",
            "trace": Trace(rounds or (first,), stop_reason),
            "image": np.random.default_rng(0).random(GRID, np.float32),
            "transform": GridTransform(GRID, TO_WORLD),
            "cells": CELLS,
            "preprocessing": {"window": (40.0, 400.0), "to_world": TO_WORLD},
            "versions": {"jax": "0.10.2"},
            "model": "toy",
            "weights_sha256": "ab" * 32,
            "seed": 7,
            "device": "cpu",
            "seconds": {"read": 0.5},
            "warnings": (),
            "source": "ct.nii.gz",
        }
        return Report(**{**fields, **changes})

    return make
