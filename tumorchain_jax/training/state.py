"""The training state and the types of a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int


class TrainState(NamedTuple):
    """All that a checkpoint keeps. Parameters are flat dicts by path; see `split_trainable`."""

    step: Int[Array, ""]
    trained: dict[str, Any]
    frozen: dict[str, Any]
    optimizer: Any


Metrics = dict[str, Float[Array, ""]]
Step = Callable[[TrainState, Any], tuple[TrainState, Metrics]]
