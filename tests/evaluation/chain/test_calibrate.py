"""Judges that know nothing do not pass; tests/cli/test_judge.py has the rules, which do."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tumorchain_jax.evaluation.chain.bars import Calibration
from tumorchain_jax.evaluation.chain.calibrate import calibrate
from tumorchain_jax.evaluation.chain.rubric import NAMES, Marks
from tumorchain_jax.evaluation.chain.text import calibration_text
from tumorchain_jax.evaluation.chain.verdict import Case, ChainVerdict


@dataclass
class Stub:
    say: Callable[[], ChainVerdict]
    name: str = "stub"
    workers: int = 1

    def judge(self, case: Case) -> ChainVerdict:
        return self.say()

    def swapped(self) -> "Stub":
        return self


def calibrated(say: Callable[[], ChainVerdict]) -> Calibration:
    return calibrate(Stub(say), 4)


def group(calibration: Calibration, name: str) -> list[bool]:
    return [row.passed for row in calibration.rows if row.group == name]


def test_a_judge_that_always_fails_does_not_pass() -> None:
    found = calibrated(lambda: ChainVerdict("failed", "invalid: none"))
    assert not found.passed
    assert found.judged == 0
    assert "0 judged" in calibration_text(found)
    assert not any(group(found, "one wrong fact"))


def test_a_constant_judge_fails_every_auc() -> None:
    marks = Marks(dict.fromkeys(NAMES, 10))
    found = calibrated(lambda: ChainVerdict("judged", "", marks, True))
    assert not any(group(found, "one wrong fact"))
    assert {row.value for row in found.rows if row.group == "one wrong fact"} == {0.5}
    assert not any(group(found, "impression against its own findings"))
    assert not any(group(found, "nothing to judge"))
    assert not any(group(found, "short answers, right or wrong"))
    assert found.binary["kappa"] == 0


def test_a_random_judge_does_not_pass() -> None:
    rng = np.random.default_rng(0)

    def say() -> ChainVerdict:
        marks = Marks({name: int(rng.integers(0, 11)) for name in NAMES})
        return ChainVerdict("judged", "", marks, bool(rng.integers(2)))

    found = calibrate(Stub(say), 20)
    assert not any(group(found, "one wrong fact"))
    assert not all(group(found, "the same twice"))
    aucs = [row.value for row in found.rows if row.group == "one wrong fact"]
    assert np.mean([auc for auc in aucs if auc is not None]) == pytest.approx(0.5, abs=0.12)
