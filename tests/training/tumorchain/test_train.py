"""The whole of training on a tiny data set and model.

Resume after a kill: tests/training/test_fit.py in process, test_survival.py for real.
"""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import read_records
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.tumorchain.dataset import data_folder, training_seeds
from tumorchain_jax.weights.measured import write_training
from tumorchain_jax.weights.model_folder import load_model, weights_sha256

pytestmark = pytest.mark.program
NANO = Path(__file__).parents[3] / "configs" / "nano.py"
TIMES = {"seconds", "seconds_a_step", "waiting_for_data", "mfu"}
TIMES |= {"tokens_per_second", "volumes_per_second"}


@pytest.fixture(scope="module")
def config(tiny: TumorChainConfig, phantoms: Path) -> ConfigDict:
    config = runpy.run_path(str(NANO))["get_config"]()
    changes = {
        "model": tiny,
        "data.folder": str(phantoms),
        "data.phantoms": 6,
        "data.first_seed": 0,
        "data.length": 800,
        "pretrain.patch_stage.steps": 0,
        "steps": 3,
        "batch_size": 2,
        "log_every": 1,
        "checkpoint.every": 1,
        "checkpoint.keep": 3,
        "trainable": (("encoder/.*", False), (".*", True)),
    }
    with config.unlocked():
        config.update_from_flattened_dict(changes)
    return config


def changed(config: ConfigDict, **changes: Any) -> ConfigDict:
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return config


@pytest.fixture(scope="module")
def whole(config: ConfigDict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from start to end."""
    workdir = tmp_path_factory.mktemp("whole")
    train(config, workdir)
    return workdir


def logged(workdir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line.keys() - TIMES} for line in lines]


def test_training_seeds_include_those_of_the_initial_checkpoint(
    config: ConfigDict, phantoms: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_training(tmp_path, weights_sha256(tmp_path), [(1_000_000, 4_000), (0, 6)])
    assert training_seeds(config, phantoms) == [(0, 6)]
    continued = changed(config, init=str(tmp_path))
    assert training_seeds(continued, phantoms) == [(0, 6), (1_000_000, 4_000)]


@pytest.mark.system(haste=True)
def test_new_phantoms_take_the_tokenizer_of_the_model_that_is_trained_on(
    config: ConfigDict, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / "tokenizer.json").write_text("of another run")
    others = {"data__folder": "", "data__phantoms": 1, "data__first_seed": 40}
    folder = data_folder(changed(config, init=str(before), **others), tmp_path / "run")
    assert (folder / "tokenizer.json").read_text() == "of another run"
    assert len(read_records(folder)) > 0


def test_training_learns_and_exports_what_it_learned(whole: Path, config: ConfigDict) -> None:
    lines = logged(whole)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[-1]["loss"] < lines[0]["loss"]
    for line in lines:
        total = line["text_loss"] + config.alpha * line["organ_loss"]
        assert line["loss"] == pytest.approx(total, rel=1e-5)
    assert lines[0]["learning_rate"] == 0
    assert lines[1]["learning_rate"] == pytest.approx(config.learning_rate)
    exported = load_model(whole / "export")
    assert (exported.model, exported.history) == (config.model, "all")
    assert exported.preprocess.grid == config.model.encoder.image
    assert exported.measured.training == ((0, 6),)  # which no calibration may share
    # The first step has a learning rate of 0: its checkpoint holds the initial parameters.
    first = ocp.StandardCheckpointer().restore(whole.absolute() / "checkpoints" / "1" / "default")
    initial = first["trained"] | first["frozen"]
    assert initial.keys() == exported.params.keys()
    for path, leaf in exported.params.items():
        same = np.array_equal(leaf, initial[path])
        assert same == path.startswith("encoder/"), path
    assert (whole / "export" / "tokenizer.json").read_bytes() == (
        Path(config.data.folder) / "tokenizer.json"
    ).read_bytes()


def test_checkpoint_of_other_rules_is_refused(
    whole: Path, config: ConfigDict, tmp_path: Path
) -> None:
    before = logged(whole)
    with pytest.raises(InputError, match="name another workdir"):
        train(changed(config, trainable=((".*", True),)), whole)
    assert logged(whole) == before


def test_configuration_at_odds_with_itself_or_the_data_is_refused(
    config: ConfigDict, tiny: TumorChainConfig, tmp_path: Path
) -> None:
    small = replace(tiny, decoder=replace(tiny.decoder, vocab_size=500))
    grid = replace(tiny, encoder=replace(tiny.encoder, image=(8, 16, 32)))
    for changes, message in (
        ({"mesh__tensor": 3}, "mesh: found data 1, fsdp -1, tensor 3"),
        ({"attention": "flash"}, "attention: found flash, expected xla or splash or cudnn"),
        ({"task": "dreams"}, "task: found dreams, expected one of tumorchain, segmentation"),
        ({"batch_size": 64}, r"rows: found \d+, expected at least the 64 of a batch"),
        ({"data__phantoms": 5}, "dataset.json: found"),
        ({"data__phantoms": 0, "window__width": 350.0}, "preprocess: found"),
        ({"data__phantoms": 0, "model": grid}, "preprocess: found"),
        ({"data__phantoms": 0, "model": small}, "at most the model's 500"),
        ({"data__phantoms": 0, "data__folder": str(tmp_path)}, "dataset.json: found none"),
    ):
        with pytest.raises(InputError, match=message) as error:
            train(changed(config, **changes), tmp_path / "run")
        assert "\n" not in str(error.value)
