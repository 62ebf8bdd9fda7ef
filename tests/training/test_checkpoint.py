import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file, save_file

from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.models.linear import LoRA
from tumorchain_jax.models.tumorchain import TumorChainConfig, abstract_params
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training import checkpoint
from tumorchain_jax.training.checkpoint import Checkpoints, export, load_exported
from tumorchain_jax.training.optimizer import make_optimizer
from tumorchain_jax.training.step import TrainState

PREPROCESS = PreprocessConfig((8, 16, 16), 50.0, 350.0)
OPTIMIZER = make_optimizer("adamw", optax.constant_schedule(0.1), 0.0, 1.0)


def state_at(step: int, shape: tuple[int, ...] = (3, 2), frozen: str = "c") -> TrainState:
    trained = {"a/b": jnp.full(shape, step + 0.1), "d": jnp.full(4, step + 0.2)}
    optimizer = jax.tree.map(lambda leaf: leaf + step, OPTIMIZER.init(trained))
    return TrainState(jnp.int32(step), trained, {frozen: jnp.ones(2)}, optimizer)


def assert_equal_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def steps_kept(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


def save(workdir: Path, *steps: int, every: int = 1, keep: int = 2, force: bool = False) -> None:
    checkpoints = Checkpoints(workdir, every, keep)
    for step in steps:
        checkpoints.save(step, state_at(step), force)
    checkpoints.close()


def restore(workdir: Path, state: TrainState) -> TrainState | None:
    checkpoints = Checkpoints(workdir, 1, 2)
    try:
        return checkpoints.restore(state)
    finally:
        checkpoints.close()


def test_the_latest_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    assert_equal_trees(restore(tmp_path, state_at(0)), state_at(3))
    assert steps_kept(tmp_path) == {"2", "3"}


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert restore(tmp_path, state_at(0)) is None


def test_due_steps_are_saved_and_others_when_forced(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5, every=2, keep=9)
    assert steps_kept(tmp_path) >= {"2", "4"}
    assert not steps_kept(tmp_path) & {"3", "5"}
    save(tmp_path, 5, 5, every=2, keep=9, force=True)
    assert "5" in steps_kept(tmp_path)


def test_a_saved_state_may_be_consumed_at_once(tmp_path: Path) -> None:
    """The next step donates these arrays while they are still being written."""
    spoil = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf * 0, state), donate_argnums=0)
    state = state_at(1, (1000, 1000))
    checkpoints = Checkpoints(tmp_path, 1, 1)
    checkpoints.save(1, state)
    jax.block_until_ready(spoil(state))
    checkpoints.close()
    assert_equal_trees(restore(tmp_path, state_at(0, (1000, 1000))), state_at(1, (1000, 1000)))


@pytest.mark.parametrize(
    ("state", "field", "found", "expected"),
    [
        (state_at(0, (3, 5)), "optimizer/1/0/mu/a/b", "(3, 2)", "(3, 5)"),
        (state_at(0, frozen="z"), "frozen/c", "(2,)", "no such array"),
        (state_at(0, frozen="b"), "frozen/b", "no such array", "(2,)"),
        (state_at(0)._replace(optimizer=()), "optimizer/1/0/count", "()", "no such array"),
    ],
    ids=["shape", "another", "missing", "optimizer"],
)
def test_a_checkpoint_of_another_configuration_is_refused(
    tmp_path: Path, state: TrainState, field: str, found: str, expected: str
) -> None:
    save(tmp_path, 1)
    with pytest.raises(InputError, match="name another workdir") as error:
        restore(tmp_path, state)
    assert error.value.field == field
    assert (error.value.found, error.value.expected) == (found, expected)
    assert str(tmp_path) in str(error.value)


@pytest.fixture(scope="module")
def params(tiny: TumorChainConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = abstract_params(tiny).items()
    return {path: rng.standard_normal(leaf.shape, np.float32) for path, leaf in shapes}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the liver"], 300)


@pytest.fixture
def folder(tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    export(tmp_path / "export", tiny, PREPROCESS, "latest", params, tokenizer, True)
    return tmp_path / "export"


def test_an_export_comes_back_bit_for_bit(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, folder: Path
) -> None:
    found = load_exported(folder)
    assert (found.model, found.preprocess) == (tiny, PREPROCESS)
    assert (found.history, found.initial_roi) == ("latest", True)
    assert found.tokenizer.token_bytes == tokenizer.token_bytes
    assert_equal_trees(found.params, params)
    assert len(found.sha256) == 64
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}


def test_adapters_are_exported_with_their_rule(
    tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = replace(tiny, lora=LoRA((".*/q_proj",), rank=2))
    shapes = abstract_params(config).items()
    params = {path: np.full(leaf.shape, 0.5, np.float32) for path, leaf in shapes}
    export(tmp_path / "new" / "export", config, PREPROCESS, "all", params, tokenizer)
    found = load_exported(tmp_path / "new" / "export")
    assert found.model == config
    assert_equal_trees(found.params, params)


def test_device_arrays_and_views_are_exported_too(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    name = "decoder/embed_tokens/embedding"
    mixed = params | {name: np.asfortranarray(params[name])}
    mixed["projector/linear1/bias"] = jnp.asarray(params["projector/linear1/bias"])
    export(tmp_path / "export", tiny, PREPROCESS, "all", mixed, tokenizer)
    assert_equal_trees(load_exported(tmp_path / "export").params, params)


def test_a_new_export_takes_the_place_of_the_old(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, folder: Path
) -> None:
    before = load_exported(folder).sha256
    changed = {path: leaf + 1 for path, leaf in params.items()}
    export(folder, tiny, PREPROCESS, "all", changed, tokenizer)
    assert load_exported(folder).sha256 != before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


def test_a_failed_export_leaves_the_old_one_whole(
    tiny: TumorChainConfig,
    params: dict,
    tokenizer: Tokenizer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = load_exported(folder).sha256

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        export(folder, tiny, PREPROCESS, "all", params, tokenizer)
    assert load_exported(folder).sha256 == before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


def edit_config(change: Callable[[dict], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    return spoil


def edit_weights(change: Callable[[dict], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        params = load_file(folder / "model.safetensors")
        change(params)
        save_file(params, folder / "model.safetensors")

    return spoil


def truncate(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


WEIGHT = "decoder/embed_tokens/embedding"
BAD_EXPORTS = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: found none"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: found none"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: found none"),
    "truncated weights": (truncate, "checkpoint: found .*incomplete"),
    "text as weights": (
        lambda f: (f / "model.safetensors").write_text("weights"),
        "checkpoint: found",
    ),
    "torn tokenizer": (lambda f: (f / "tokenizer.json").write_text('{"a'), "tokenizer: found"),
    "binary config": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"),
        "checkpoint: found .*decode",
    ),
    "torn config": (lambda f: (f / "config.json").write_text('{"model":'), "Expecting value"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "checkpoint: found"),
    "no model": (edit_config(lambda c: c.pop("model")), "found .*model.*, expected a TumorChain"),
    "unknown field": (edit_config(lambda c: c["model"].update(colour=1)), "colour"),
    "number as encoder": (edit_config(lambda c: c["model"].update(encoder=3)), "checkpoint: found"),
    "unknown history": (edit_config(lambda c: c.update(history="some")), "history 'some'"),
    "another window": (edit_config(lambda c: c["preprocess"].update(width=-1.0)), "width > 0 HU"),
    "another size": (
        edit_config(lambda c: c["model"]["decoder"].update(vocab_size=600)),
        rf"safetensors: {WEIGHT}: found \(512, 16\), expected \(600, 16\)",
    ),
    "small vocabulary": (
        edit_config(lambda c: c["model"]["decoder"].update(vocab_size=90)),
        "vocabulary: found 2.. ids, expected at most the model's 90",
    ),
    "extra weight": (
        edit_weights(lambda p: p.update(extra=np.zeros(3, np.float32))),
        r"safetensors: extra: found \(3,\), expected no such array",
    ),
    "missing weight": (
        edit_weights(lambda p: p.pop(WEIGHT)),
        rf"safetensors: {WEIGHT}: found no such array, expected \(512, 16\)",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_EXPORTS.values(), ids=BAD_EXPORTS)
def test_a_bad_export_is_refused_in_one_line(
    folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=message) as error:
        load_exported(folder)
    assert str(error.value).startswith(str(folder))
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a checkpoint folder"):
        load_exported(tmp_path / "nothing")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a file is gone; then, what TensorStore says of an array that cannot be read."""
    save(tmp_path, 1)
    monkeypatch.setattr(ocp.CheckpointManager, "restore", Mock(side_effect=Exception("pages\nof")))
    path = tmp_path / "checkpoints" / "1" / "default" / "_METADATA"
    whole = path.read_bytes()
    for content, kind in ((whole[: len(whole) // 2], "JSONDecodeError"), (whole, "Exception")):
        path.write_bytes(content)
        found = rf"1: checkpoint: found a damaged one \({kind}\)"
        with pytest.raises(InputError, match=found) as error:
            restore(tmp_path, state_at(0))
        assert "\n" not in str(error.value)
