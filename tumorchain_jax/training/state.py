"""The training state and the types of a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

Params = dict[str, Any]
"""Arrays by path, `decoder/layers/mlp/gate_proj/kernel`."""
NO_STATISTICS: Params = {}
"""Of models without any; a pytree, never changed in place."""


class TrainState(NamedTuple):
    """All that a checkpoint holds. Parameters are flat dicts by path; see `split_trainable`.

    Attributes:
        trained, frozen: parameters that the optimizer updates, and those that it does not.
        statistics: arrays that a step updates without a gradient, such as the running mean and
            variance of BatchNorm; empty for most models.
    """

    step: Int[Array, ""]
    trained: Params
    frozen: Params
    optimizer: Any
    statistics: Params = NO_STATISTICS

    @property
    def params(self) -> Params:
        """All parameters by path."""
        return self.frozen | self.trained


Metrics = dict[str, Float[Array, ""]]
Step = Callable[[TrainState, Any], tuple[TrainState, Metrics]]
