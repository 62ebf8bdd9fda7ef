"""Every configuration that is handed out has the fields that training reads."""

from pathlib import Path

import pytest

from tumorchain_jax.training.config import read_config

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("tumorchain_*.py")))
def test_a_configuration_has_the_fields_of_nano_s(name: str) -> None:
    nano, config = read_config(CONFIGS / "nano.py", []), read_config(CONFIGS / name, [])
    assert config.keys() == nano.keys()
    for field in ("data", "window", "checkpoint", "encoder"):
        assert config[field].keys() == nano[field].keys(), field
    # An encoder without lessons needs no more than the word that it has none.
    assert config.encoder.alone.steps == config.encoder.whole.steps == 0
