"""What the parity tests share: float32 products in full, PyTorch models with nothing constant."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """Accelerators round the factors of float32 products unless told not to."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="session")
def randomised() -> Callable[[Any], Any]:
    """Every parameter random, biases and norms too: a constant one would hide a mix-up."""
    torch = pytest.importorskip("torch")

    def randomise(model: Any, gain: float = 1.4) -> Any:
        """Weights of this many standard deviations of what keeps a signal's size."""
        torch.manual_seed(0)
        spread = gain * model.config.get_text_config().hidden_size ** -0.5
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, float("norm" in name), spread)
        return model.eval()

    return randomise
