from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _compile_in_haste() -> Iterator[None]:
    """These programs are large and run for a few steps: compiling them is all they cost."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
