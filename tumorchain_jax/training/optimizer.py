"""AdamW with warm-up and cosine decay (paper, Table 5), on the parameters the rules choose."""

from collections.abc import Mapping
from typing import Any

import optax

from tumorchain_jax.errors import InputError
from tumorchain_jax.path_rules import Rules, first_match, flatten


def learning_rate(peak: float, steps: int, warmup_ratio: float) -> optax.Schedule:
    """Linear warm-up over `warmup_ratio` of the steps, then cosine to zero."""
    warmup = max(1, round(steps * warmup_ratio))
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1))


def adamw(
    schedule: optax.Schedule,
    weight_decay: float,
    clip_norm: float,
    rate_scale: Rules[float] = ((".*", 1.0),),
) -> optax.GradientTransformation:
    """Gradients clipped by their global norm, then AdamW.

    Args:
        rate_scale: what the learning rate of each parameter (flat dict by path) is multiplied by.
    """

    def scale(updates: Mapping[str, Any], _: Any) -> dict[str, Any]:
        return {path: first_match(rate_scale, path) * update for path, update in updates.items()}

    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(schedule, weight_decay=weight_decay),
        optax.stateless(scale),
    )


def split_trainable(
    params: dict[str, Any], trainable: Rules[bool]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(trained, frozen) as flat dicts by path.

    Raises:
        InputError: no rule speaks of some parameter, or nothing is left to train.
    """
    flat = flatten(params)
    trained = {path: leaf for path, leaf in flat.items() if first_match(trainable, path)}
    if not trained:
        raise InputError(
            "config",
            "trainable",
            f"{trainable}, which freeze everything",
            "something to train",
            "mend the rules",
        )
    return trained, {path: leaf for path, leaf in flat.items() if path not in trained}
