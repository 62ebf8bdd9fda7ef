from pathlib import Path

import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.config import read_config

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiments.py"


@pytest.fixture
def config() -> ConfigDict:
    """That of the experiments."""
    return read_config(EXPERIMENTS, [])
