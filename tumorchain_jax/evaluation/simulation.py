"""Simulated pairs of models, to check the test that `compare` uses: false alarms, and power.

Questions about one patient share an effect on the difference between the models, as answers about
one scan do. It is a model of that clustering, not of any data.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tumorchain_jax.evaluation.statistics import sign_flip, wilson

ACCURACY, LEVEL = 0.6, 0.05


@dataclass(frozen=True)
class Setting:
    """A simulated comparison.

    Attributes:
        patients, questions: how many, and how many questions about each.
        shift: by how much model A is better, as a share.
        effect: standard deviation over patients of the difference between the models.
    """

    patients: int
    questions: int
    shift: float = 0.0
    effect: float = 0.15


def rejections(setting: Setting, draws: int, flips: int = 1000, seed: int = 0) -> int:
    """Count the draws in which sign flips call the two models different at 5 %."""
    rng = np.random.default_rng(seed)
    return sum(sign_flip(_differences(rng, setting), flips) < LEVEL for _ in range(draws))


def _differences(rng: np.random.Generator, setting: Setting) -> Float[np.ndarray, " patients"]:
    """Draw each patient's difference in the number of right answers."""
    count = setting.patients, 1
    level = ACCURACY + 0.15 * rng.standard_normal(count)
    half = (setting.shift + setting.effect * rng.standard_normal(count)) / 2
    asked = setting.patients, setting.questions
    right_a, right_b = (
        rng.random(asked) < np.clip(level + sign * half, 0.02, 0.98) for sign in (1, -1)
    )
    return right_a.sum(axis=1).astype(float) - right_b.sum(axis=1)


def check(draws: int = 400) -> dict[str, dict[str, float]]:
    """Measure false alarms of equal models, and power at 3 points of difference, in percent."""
    settings = {
        "equal models, 100 patients x 12 questions": Setting(100, 12),
        "3 points better, 1,000 patients x 12 questions": Setting(1000, 12, shift=0.03),
    }
    rows = {}
    for name, setting in settings.items():
        count = rejections(setting, draws)
        low, high = wilson(count, draws)
        rows[name] = {
            "called different": 100 * count / draws,
            "from": round(100 * low, 1),
            "to": round(100 * high, 1),
            "draws": draws,
        }
    return rows
