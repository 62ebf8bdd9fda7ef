"""Call a Linen module as a pure function of its parameters."""

from typing import Any

import flax.linen as nn


def run(model: nn.Module, params: Any, *args: Any, method: str = "__call__") -> Any:
    """Call a method of the model on its parameters (a nested dict)."""
    return model.apply({"params": params}, *args, method=method)
