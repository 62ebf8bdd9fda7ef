"""Logistic regression on features of scans, its penalty chosen on held-out patients.

Shape letters: N questions seen, M asked, F features, C answers.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float

PENALTIES = (1.0, 0.1, 0.01, 0.001)
"""On the sum of squared weights; chosen by held-out patients, the strongest of equals."""
HELD_OUT_ONE_IN = 5
STEPS = 100


def learn_to_answer(
    seen: Float[np.ndarray, "N F"],
    answers: Sequence[str],
    patients: Sequence[str],
    asked: Float[np.ndarray, "M F"],
) -> list[str]:
    """Learn from the features `seen` and predict the likeliest answers to those `asked`."""
    names, logits = answer_logits(seen, answers, patients, asked)
    return [names[n] for n in logits.argmax(axis=1)]


def answer_logits(
    seen: Float[np.ndarray, "N F"],
    answers: Sequence[str],
    patients: Sequence[str],
    asked: Float[np.ndarray, "M F"],
) -> tuple[list[str], Float[np.ndarray, "M C"]]:
    """Fit logistic regression on the features `seen`, and apply it to those `asked`.

    The penalty is chosen on a fifth of the `patients`, held out; then it is fitted on all.

    Returns:
        the answers in order, and the logits of each.
    """
    middle, scale = seen.mean(axis=0), seen.std(axis=0)
    scale[scale < 1e-6] = 1  # a constant feature carries no information
    inputs, new = (
        jnp.pad((rows - middle) / scale, ((0, 0), (0, 1)), constant_values=1)
        for rows in (seen, asked)
    )
    names, numbers = np.unique(answers, return_inverse=True)
    targets = jax.nn.one_hot(numbers, len(names))
    held = jnp.asarray(held_out(patients))

    def held_out_loss(penalty: float) -> float:
        return float(_loss(_fit(inputs, targets, ~held, penalty), inputs, targets, held))

    weights = _fit(inputs, targets, jnp.ones_like(held), min(PENALTIES, key=held_out_loss))
    return names.tolist(), np.asarray(new @ weights)


def held_out(patients: Sequence[str]) -> Bool[np.ndarray, " N"]:
    """Mark the questions that are held out to choose the penalty."""
    return np.isin(patients, np.unique(patients)[::HELD_OUT_ONE_IN])


@jax.jit
def _fit(
    inputs: Float[Array, "N F"],
    targets: Float[Array, "N C"],
    counts: Bool[Array, " N"],
    penalty: Float[Array, ""],
) -> Float[Array, "F C"]:
    """Fit the weights by L-BFGS; the last input is always one, and its weight is not penalised."""

    def penalised(weights: Float[Array, "F C"]) -> Float[Array, ""]:
        return _loss(weights, inputs, targets, counts) + penalty * jnp.sum(weights[:-1] ** 2)

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(penalised)

    def step(_: Array, state: tuple[Array, Any]) -> tuple[Array, Any]:
        weights, memory = state
        value, grad = value_and_grad(weights, state=memory)
        update, memory = solver.update(
            grad, memory, weights, value=value, grad=grad, value_fn=penalised
        )
        return weights + update, memory

    start = jnp.zeros((inputs.shape[1], targets.shape[1]))
    return lax.fori_loop(0, STEPS, step, (start, solver.init(start)))[0]


def _loss(
    weights: Float[Array, "F C"],
    inputs: Float[Array, "N F"],
    targets: Float[Array, "N C"],
    counts: Bool[Array, " N"],
) -> Float[Array, ""]:
    """Mean cross entropy over the questions marked in `counts`."""
    losses = optax.softmax_cross_entropy(inputs @ weights, targets)
    return counts @ losses / jnp.maximum(counts.sum(), 1)
