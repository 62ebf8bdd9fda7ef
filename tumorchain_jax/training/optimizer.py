"""Optimizers: AdamW with warm-up and cosine decay (paper, Table 5), or Muon."""

import re
from collections.abc import Mapping
from typing import Any

import optax
import optax.contrib
from optax.contrib import MuonDimensionNumbers

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import Rules, first_match, flatten

STATISTICS = re.compile(r".*/running_(mean|var)")
"""Parameters that are statistics of a pretraining, in any family: they are never trained."""


def learning_rate(peak: float, steps: int, warmup_ratio: float) -> optax.Schedule:
    """Linear warm-up over `warmup_ratio` of the steps, then cosine to zero."""
    warmup = max(1, round(steps * warmup_ratio))
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1))


def make_optimizer(
    kind: str,
    schedule: optax.Schedule,
    weight_decay: float,
    clip_norm: float,
    lr_multiplier: Rules[float] = ((".*", 1.0),),
) -> optax.GradientTransformation:
    """Gradients clipped by their global norm, then AdamW or Muon.

    Muon (https://kellerjordan.github.io/posts/muon/) makes the update of every matrix inside the
    network orthogonal, and leaves all other parameters to AdamW (with Nesterov's momentum) at a
    tenth of the learning rate. It is for training from random weights: after 1000 steps on
    single patches nano's encoder detected lesions at an AUC of 0.93, with AdamW at 0.87.

    Args:
        kind: `adamw` or `muon`.
        lr_multiplier: multiplies the learning rate of each parameter (flat dict by path).

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
    return optax.chain(optax.clip_by_global_norm(clip_norm), rule, optax.stateless(scale))


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
