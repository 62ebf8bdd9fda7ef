"""Training from an exported checkpoint, or from imported parts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.models.vision.vit3d.convert import CLIP_FIELDS
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.tumorchain.initial import loaded_params, random_params
from tumorchain_jax.weights.model_folder import export

ADAPTED = LoRA((r"decoder/.*/q_proj",), rank=2)


def params(model: TumorChainConfig, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = abstract_params(model).items()
    return {path: rng.standard_normal(leaf.shape, np.float32) for path, leaf in shapes}


def places(model: TumorChainConfig, **more: tuple[int, ...]) -> dict[str, jax.ShapeDtypeStruct]:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = {path: leaf.shape for path, leaf in abstract_params(model).items()} | more
    return {
        path: jax.ShapeDtypeStruct(shape, np.float32, sharding=here)
        for path, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the liver"], 300)


@pytest.fixture
def config(tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path) -> ConfigDict:
    """It starts from a checkpoint of the tiny model."""
    folder = tmp_path / "export"
    export(folder, tiny, PreprocessConfig((8, 16, 16)), "all", params(tiny, 0), tokenizer)
    return ConfigDict({"init": str(folder), "window": {"level": 40.0, "width": 400.0}})


def test_all_parameters_are_the_checkpoints(
    config: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer
) -> None:
    expected = params(tiny, 0)
    found = loaded_params(config, tokenizer, places(tiny))
    assert found.keys() == expected.keys()
    for path, leaf in found.items():
        assert isinstance(leaf, jax.Array), path
        np.testing.assert_array_equal(leaf, expected[path])


def test_adapters_are_new(config: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer) -> None:
    wanted, kept = places(replace(tiny, lora=ADAPTED)), params(tiny, 0)
    found = loaded_params(config, tokenizer, wanted)
    assert found.keys() == kept.keys()
    for path, leaf in found.items():
        np.testing.assert_array_equal(leaf, kept[path])
    assert {path for path in wanted if path not in kept} == {
        f"decoder/layers/self_attn/q_proj/lora_{part}" for part in "ab"
    }


def test_another_model_is_refused(
    config: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    wide = places(replace(tiny, decoder=replace(tiny.decoder, intermediate_size=48)))
    expected = r"mlp/down_proj/kernel: found \(2, 32, 16\), expected \(2, 48, 16\)"
    with pytest.raises(InputError, match=expected):
        loaded_params(config, tokenizer, wide)
    part = places(tiny)
    del part["projector/linear1/bias"]
    with pytest.raises(InputError, match=r"linear1/bias: found \(16,\), expected no such array"):
        loaded_params(config, tokenizer, part)
    with pytest.raises(InputError, match=r"more: found no such array, expected \(3,\)"):
        loaded_params(config, tokenizer, places(tiny, more=(3,)))


def test_adapters_of_the_checkpoint_are_not_dropped(
    config: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    adapted = replace(tiny, lora=ADAPTED)
    config.init = str(tmp_path / "adapted")
    own = params(adapted, 0)
    export(Path(config.init), adapted, PreprocessConfig((8, 16, 16)), "all", own, tokenizer)
    with pytest.raises(InputError, match=r"lora_a: found \(2, 16, 2\), expected no such array"):
        loaded_params(config, tokenizer, places(tiny))
    found = loaded_params(config, tokenizer, places(adapted))
    for path, leaf in found.items():
        np.testing.assert_array_equal(leaf, own[path])


def test_init_with_another_tokenizer_or_window_is_refused(
    config: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    fresh = places(tiny)
    with pytest.raises(InputError, match=r"tokenizer\.json: found other tokens"):
        loaded_params(config, Tokenizer.train(["the spleen"], 300), fresh)
    config.window.width = 350.0
    with pytest.raises(InputError, match=r"window: found .*400\.0.*, expected .*350\.0"):
        loaded_params(config, tokenizer, fresh)
    config.init = str(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"config\.json: found none"):
        loaded_params(config, tokenizer, fresh)


@pytest.fixture
def imported(config: ConfigDict, tiny: TumorChainConfig, tmp_path: Path) -> ConfigDict:
    """The language model and the encoder of the tiny model, each imported from PyTorch's files."""
    theirs = tmp_path / "theirs"
    convert("export", Path(config.init), theirs, None, None, None)
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (theirs / "encoder.safetensors").rename(encoder / "model.safetensors")
    sizes = {name: getattr(tiny.encoder, ours) for name, ours in CLIP_FIELDS.items()}
    (encoder / "config.json").write_text(json.dumps(sizes))
    folders = [tmp_path / "imported-decoder", tmp_path / "imported-encoder"]
    for source, folder in zip((theirs / "language_model", encoder), folders, strict=True):
        import_folder(source, folder)
    return ConfigDict({**config, "init": ",".join(map(str, folders))})


def test_imported_parts_are_filled_and_the_rest_is_new(
    imported: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer
) -> None:
    kept = params(tiny, 0)
    found = loaded_params(imported, tokenizer, places(tiny))
    assert found.keys() == {path for path in kept if path.startswith(("decoder/", "encoder/"))}
    for path, leaf in found.items():
        np.testing.assert_array_equal(leaf, kept[path], err_msg=path)


def test_only_what_is_missing_is_made(tiny: TumorChainConfig) -> None:
    wanted = {path: leaf for path, leaf in places(tiny).items() if path.startswith("projector/")}
    found, all_params = random_params(tiny, 5, wanted), random_params(tiny, 5, places(tiny))
    assert found.keys() == wanted.keys()
    for path, leaf in found.items():
        np.testing.assert_array_equal(leaf, all_params[path], err_msg=path)


def test_imported_parts_of_another_model_are_refused(
    imported: ConfigDict, tiny: TumorChainConfig, tokenizer: Tokenizer
) -> None:
    wide = places(replace(tiny, decoder=replace(tiny.decoder, intermediate_size=48)))
    with pytest.raises(
        InputError, match=r"down_proj/kernel: found \(2, 32, 16\), expected \(2, 48"
    ):
        loaded_params(imported, tokenizer, wide)
    with pytest.raises(InputError, match=r"tokenizer\.json: found other tokens"):
        loaded_params(imported, Tokenizer.train(["the spleen"], 300), places(tiny))
    decoder = imported.init.split(",")[0]
    imported.init = f"{decoder},{decoder}"
    with pytest.raises(InputError, match="what another folder fills too"):
        loaded_params(imported, tokenizer, places(tiny))
