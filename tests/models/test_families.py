"""The registry: every family keeps its protocol, and its configuration survives JSON."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.families import (
    LANGUAGE_MODELS,
    VISION_ENCODERS,
    EncoderConfig,
    LanguageModel,
    VisionEncoder,
    decoder_from_dict,
    decoder_to_dict,
    language_model,
    published_language_model,
    vision_encoder,
)
from tumorchain_jax.models.language.qwen2.model import QWEN2_5_3B, Qwen2Config
from tumorchain_jax.models.language.qwen3.model import QWEN3_8B, Qwen3Config
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.tumorchain.flops import training_flops
from tumorchain_jax.models.tumorchain.model import (
    NANO,
    NANO_LENS,
    TUMORCHAIN_3B,
    TUMORCHAIN_7B,
    TumorChain,
    TumorChainConfig,
    abstract_params,
    logical_axes,
)
from tumorchain_jax.models.vision.resnet3d.model import ResNet3DConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.models.weight_map import sources
from tumorchain_jax.parallel.partition import RULES
from tumorchain_jax.training.pretraining.model import patch_encoder

CHECKPOINT = Path(__file__).parents[2] / "tumorchain_jax" / "pretrained" / "nano" / "config.json"
ENCODERS: dict[str, Any] = {
    "m3d": ViT3DConfig((8, 64, 64), (4, 8, 8), 32, 64, 1, 4),
    "merlin": ResNet3DConfig((32, 64, 64), (2, 1, 1, 1), 16),
}
DECODERS = {
    "qwen2": Qwen2Config(64, 32, 48, 1, 4, 2, 8, True),
    "qwen3": Qwen3Config(64, 32, 48, 1, 4, 2, 16, False),
}
MERLIN = TumorChainConfig(ENCODERS["merlin"], DECODERS["qwen3"], roi_slots=4)


def test_every_family_keeps_its_protocol() -> None:
    assert [*ENCODERS] == [*VISION_ENCODERS]
    assert [*DECODERS] == [*LANGUAGE_MODELS]
    for name, encoder in VISION_ENCODERS.items():
        assert isinstance(encoder, VisionEncoder)
        assert isinstance(ENCODERS[name], EncoderConfig)
        assert vision_encoder(ENCODERS[name]) is encoder
    for name, decoder in LANGUAGE_MODELS.items():
        assert isinstance(decoder, LanguageModel)
        assert language_model(DECODERS[name]) is decoder
        for kind in decoder.MODEL_TYPES:
            assert published_language_model(kind) is decoder
    assert published_language_model("gemma") is published_language_model(None) is None


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_config_of_any_two_families_survives_json(encoder: str, decoder: str) -> None:
    config = TumorChainConfig(ENCODERS[encoder], DECODERS[decoder])
    values = json.loads(json.dumps(config.to_dict()))
    assert TumorChainConfig.from_dict(values) == config
    named = {"encoder": values["encoder"].get("family"), "decoder": values["decoder"].get("family")}
    assert named["encoder"] == (None if encoder == "m3d" else encoder)
    assert named["decoder"] == (None if decoder == "qwen2" else decoder)


@pytest.mark.parametrize("config", [NANO, TUMORCHAIN_3B, TUMORCHAIN_7B], ids=["nano", "3B", "7B"])
def test_config_of_the_first_families_is_written_as_ever(config: TumorChainConfig) -> None:
    """Field by field what `dataclasses.asdict` gives, but for what is None or newer and unset."""
    values = config.to_dict()
    assert values["encoder"] == vars(config.encoder)
    assert values["decoder"] == {k: v for k, v in vars(config.decoder).items() if v is not None}
    assert "mrope_section" not in values["decoder"]
    assert [*values] == [name for name in vars(config) if name not in ("roi_rank", "crop")]


def test_config_of_nano_s_checkpoint_is_read() -> None:
    values = json.loads(CHECKPOINT.read_text())["model"]
    assert TumorChainConfig.from_dict(values) == NANO_LENS
    assert values == json.loads(CHECKPOINT.read_text())["model"], "left as it was"


def test_config_with_mrope_sections_survives_json() -> None:
    config = replace(QWEN2_5_3B, mrope_section=(16, 24, 24))
    assert decoder_from_dict(json.loads(json.dumps(decoder_to_dict(config)))) == config


def test_config_of_no_family_is_refused() -> None:
    with pytest.raises(ValueError, match="found 'gpt2', expected one of qwen2, qwen3"):
        decoder_from_dict({**decoder_to_dict(QWEN3_8B), "family": "gpt2"})


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_tables_and_partition_rules_speak_of_every_parameter(encoder: str, decoder: str) -> None:
    config = TumorChainConfig(ENCODERS[encoder], DECODERS[decoder])
    params = abstract_params(config)
    for part, table in (
        ("encoder/", VISION_ENCODERS[encoder].TABLE),
        ("decoder/", LANGUAGE_MODELS[decoder].TABLE),
    ):
        like = {path.removeprefix(part): x for path, x in params.items() if path.startswith(part)}
        assert like
        assert sources(table, like).keys() == like.keys()
    named = {name for axes, _ in logical_axes(config).values() for name in axes if name}
    assert named <= {name for name, _ in RULES}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_gives_features_of_every_cell(name: str) -> None:
    config = ENCODERS[name]
    module = VISION_ENCODERS[name].build(config)
    volume = jax.ShapeDtypeStruct((2, *config.image), jnp.float32)
    features, _ = jax.eval_shape(module.init_with_output, jax.random.key(0), volume)
    assert features.shape == (2, prod(config.cells), config.features)
    wrong = jax.ShapeDtypeStruct((2, *(2 * size for size in config.image)), jnp.float32)
    with pytest.raises(ValueError, match="voxels, expected"):
        jax.eval_shape(module.init, jax.random.key(0), wrong)


def test_flops_of_a_frozen_encoder_are_two_thirds() -> None:
    paths = {*abstract_params(MERLIN)}
    everything, nothing = (training_flops(MERLIN, 1, 8, 3, trained) for trained in (paths, set()))
    saved = everything - training_flops(MERLIN, 1, 8, 3, {p for p in paths if "encoder/" not in p})
    family, encoder = vision_encoder(MERLIN.encoder), MERLIN.encoder
    kernels = {
        path.removeprefix("encoder/"): leaf.shape
        for path, leaf in abstract_params(MERLIN).items()
        if path.startswith("encoder/") and path.endswith("/kernel")
    }
    forward = sum(family.kernel_flops(encoder, *kernel) for kernel in kernels.items())
    assert saved == forward
    assert nothing > 2 * forward


def test_model_of_other_families_says_a_word_about_every_organ() -> None:
    """Shapes through the whole assembly: encoder, projector, bank, decoder."""
    model, config = TumorChain(MERLIN), MERLIN
    tokens, rois = jnp.zeros((2, 5), jnp.int32), jnp.zeros((2, 3, 4), jnp.int32)
    volume = jax.ShapeDtypeStruct((2, *config.encoder.image), jnp.float32)
    args = (volume, tokens, tokens, one_sequence(2, 5), rois, rois > 0)
    (logits, organs), _ = jax.eval_shape(model.init_with_output, jax.random.key(0), *args)
    assert (logits.shape, organs.shape) == ((2, 5, 64), (2, 3, 2))
    assert config.roi.global_tokens == 1
    assert config.roi.grid == (2, 2, 2)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ResNet3DConfig((160, 224, 220)), "encoder.image"),
        (lambda: TumorChainConfig(ResNet3DConfig(), QWEN3_8B, global_pool=2), "model.global_pool"),
        (lambda: patch_encoder(MERLIN), "model.encoder"),
    ],
    ids=["no-whole-cells", "cells-that-cannot-be-pooled", "cell-tags-without-patches"],
)
def test_sizes_that_do_not_go_together_are_refused(make: Any, field: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert error.value.field == field
