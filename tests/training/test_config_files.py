"""Every configuration that is handed out has the fields that training reads."""

from pathlib import Path

import pytest

from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.tumorchain.model import abstract_params
from tumorchain_jax.training.optimizer import split_trainable

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("tumorchain_*.py")))
def test_a_configuration_has_the_fields_of_nano_s(name: str) -> None:
    nano, config = read_config(CONFIGS / "nano.py", []), read_config(CONFIGS / name, [])
    assert config.keys() == nano.keys()
    for field in ("data", "window", "checkpoint", "pretrain"):
        assert config[field].keys() == nano[field].keys(), field
    # An encoder without lessons needs no more than the word that it has none.
    assert config.pretrain.patch_stage.steps == config.pretrain.scan_stage.steps == 0


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_with_adapters_the_decoder_rests(size: str) -> None:
    config = read_config(CONFIGS / f"tumorchain_{size}_lora.py", [])
    trained, frozen = split_trainable(unflatten(abstract_params(config.model)), config.trainable)
    assert all(path.startswith("decoder/") for path in frozen)
    assert all("/lora_" in path for path in trained if path.startswith("decoder/"))
    assert sum("/lora_" in path for path in trained) == 2 * 7  # layers are stacked
