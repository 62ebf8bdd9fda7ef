"""Optimizers: AdamW with warm-up and cosine decay (paper, Table 5), or Muon."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from optax.contrib import MuonDimensionNumbers

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import Rules, first_match, flatten

STATISTICS = re.compile(r".*/running_(mean|var)")
"""Parameters that are statistics of a pretraining, in any family: they are never trained."""


class Unfreeze(NamedTuple):
    """Parameters that are trained from a step on, at a learning rate of their own.

    Attributes:
        paths: regex over their paths.
        start: the first step, counted from 0, that changes them.
        lr_factor: multiplies their learning rate from then on.
    """

    paths: str
    start: int
    lr_factor: float


Decay = Literal["cosine", "constant"]
"""Of the learning rate behind its warm-up: to zero, or none."""


def learning_rate(
    peak: float, steps: int, warmup_ratio: float, decay: Decay = "cosine"
) -> optax.Schedule:
    """Linear warm-up over `warmup_ratio` of the steps, then `decay`."""
    warmup = max(1, round(steps * warmup_ratio))
    if decay == "constant":
        return optax.linear_schedule(0.0 if warmup_ratio else peak, peak, warmup)
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1))


def constant_then_linear(peak: float, steps: int) -> optax.Schedule:
    """Constant for the first half of the steps, then linear to zero."""
    return optax.join_schedules(
        [
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, max(1, steps - steps // 2)),
        ],
        [steps // 2],
    )


def make_adversarial_optimizer(
    schedule: optax.Schedule, clip_norm: float
) -> optax.GradientTransformation:
    """Adam whose momentum is short (0.5), as generators and discriminators are trained."""
    return optax.chain(optax.clip_by_global_norm(clip_norm), optax.adam(schedule, b1=0.5))


def make_optimizer(
    kind: str,
    schedule: optax.Schedule,
    weight_decay: float,
    clip_norm: float,
    lr_multiplier: Rules[float] = ((".*", 1.0),),
    unfreeze: Unfreeze | None = None,
) -> optax.GradientTransformation:
    """Gradients clipped by their global norm, then AdamW or Muon.

    Muon (https://kellerjordan.github.io/posts/muon/) makes the update of every matrix inside the
    network orthogonal, and leaves all other parameters to AdamW (with Nesterov's momentum) at a
    tenth of the learning rate. It is for training from random weights: after 1000 steps on
    single patches nano's encoder detected lesions at an AUC of 0.93, with AdamW at 0.87.

    Args:
        kind: `adamw` or `muon`.
        lr_multiplier: multiplies the learning rate of each parameter (flat dict by path).
        unfreeze: before its start these parameters stay as they are and do not count in the norm,
            so the others are trained as if they were frozen. Their moments are estimated from the
            first step on: moments that start late would make the first updates too large.

    Raises:
        InputError: another kind.
    """

    def scale(updates: Mapping[str, Any], _: Any) -> dict[str, Any]:
        return {path: first_match(lr_multiplier, path) * update for path, update in updates.items()}

    if kind == "adamw":
        rule = optax.adamw(schedule, weight_decay=weight_decay)
    elif kind == "muon":
        rule = optax.contrib.muon(
            schedule,
            weight_decay=weight_decay,
            adam_learning_rate=lambda step: 0.1 * schedule(step),
            adam_weight_decay=weight_decay,
            muon_weight_dimension_numbers=_matrices,
        )
    else:
        raise InputError("config", "optimizer", kind, "adamw or muon", "use one of these")
    if unfreeze is None:
        return optax.chain(optax.clip_by_global_norm(clip_norm), rule, optax.stateless(scale))
    clip = _by_step(lambda step, updates: _clip(updates, clip_norm, unfreeze, step))
    late = _by_step(lambda step, updates: _scale_late(updates, unfreeze, step))
    return optax.chain(clip, rule, optax.stateless(scale), late)


def _by_step(
    change: Callable[[jax.Array, Mapping[str, Any]], dict[str, Any]],
) -> optax.GradientTransformation:
    """A change of the updates that depends on the step, counted from 0."""

    def update(updates: Any, step: Any, params: Any = None) -> tuple[Any, Any]:
        return change(step, updates), step + 1

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def _clip(
    gradients: Mapping[str, Any], clip_norm: float, unfreeze: Unfreeze, step: jax.Array
) -> dict[str, Any]:
    """Clip by the norm of the gradients of those parameters that this step changes."""
    late, others = _split_late(gradients, unfreeze)
    norm = optax.tree.norm(others)
    norm = jnp.where(step < unfreeze.start, norm, jnp.hypot(norm, optax.tree.norm(late)))
    return {
        path: jnp.where(norm < clip_norm, gradient, gradient / norm * clip_norm)
        for path, gradient in gradients.items()
    }


def _scale_late(updates: Mapping[str, Any], unfreeze: Unfreeze, step: jax.Array) -> dict[str, Any]:
    late, others = _split_late(updates, unfreeze)
    factor = jnp.where(step < unfreeze.start, 0.0, unfreeze.lr_factor)
    return others | {path: factor.astype(update.dtype) * update for path, update in late.items()}


def _split_late(
    values: Mapping[str, Any], unfreeze: Unfreeze
) -> tuple[dict[str, Any], dict[str, Any]]:
    late = {path for path in values if re.fullmatch(unfreeze.paths, path)}
    others = {path: value for path, value in values.items() if path not in late}
    return {path: values[path] for path in late}, others


def _matrices(params: Mapping[str, Any]) -> dict[str, MuonDimensionNumbers | None]:
    """Input and output axes of the matrices inside the network; None for other parameters."""
    inner = re.compile(r"(encoder|projector|decoder)/(?!lm_head).*/kernel")
    return {
        path: MuonDimensionNumbers(leaf.ndim - 2, leaf.ndim - 1) if inner.fullmatch(path) else None
        for path, leaf in params.items()
    }


def split_trainable(
    params: dict[str, Any], trainable: Rules[bool]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(trained, frozen) as flat dicts by path; running statistics are always frozen.

    Raises:
        InputError: no rule speaks of some parameter, or nothing is left to train.
    """
    flat = flatten(params)
    trained = {
        path: leaf
        for path, leaf in flat.items()
        if first_match(trainable, path) and not STATISTICS.fullmatch(path)
    }
    if not trained:
        raise InputError(
            "config",
            "trainable",
            f"{trainable}, which freeze everything",
            "something to train",
            "fix the rules",
        )
    return trained, {path: leaf for path, leaf in flat.items() if path not in trained}
