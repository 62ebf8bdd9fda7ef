import json
from dataclasses import replace
from functools import cache, partial
from math import prod

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.language.qwen2.model import Qwen2Config, empty_cache, unroll
from tumorchain_jax.models.layers.attention import Packing
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import (
    NANO,
    TUMORCHAIN_3B,
    TUMORCHAIN_7B,
    TumorChain,
    TumorChainConfig,
    abstract_params,
    gather_rows,
)
from tumorchain_jax.models.tumorchain.projector import Projector, ProjectorConfig, pool_cells
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig
from tumorchain_jax.parallel.partition import RULES

KEY = jax.random.key(0)
TINY = TumorChainConfig(
    encoder=ViT3DConfig((4, 8, 16), (1, 2, 4), 8, 12, 2, 2),
    decoder=Qwen2Config(
        vocab_size=19,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        tie_word_embeddings=False,
    ),
    roi_slots=3,
)
LORA = LoRA((r".*/(q_proj|v_proj)", r"encoder/.*/qkv", r"projector/linear\d"), rank=2)
CONFIGS = {
    "nano": NANO,
    "3B": TUMORCHAIN_3B,
    "7B": TUMORCHAIN_7B,
    "tiny": TINY,
    "lora": replace(TINY, lora=LORA),
    "global": replace(TINY, roi_source="global", projector=ProjectorConfig("gelu")),
}
EVERY_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
AXES = {name for name, _ in RULES}

# Two scans: a prefix of two places, then two questions of four places and of three; a pad.
RNG = np.random.default_rng(0)
TOKENS = jnp.asarray(RNG.integers(0, 19, (2, 10)))
VISUAL_INDEX = jnp.array(
    [[3, -1, 0, -1, 69, -1, -1, -1, -1, -1], [-1, 1, 2, -1, -1, 7, 71, 4, -1, -1]]
)
PACKING = Packing(
    jnp.array([[0, 1, 2, 3, 4, 5, 2, 3, 4, 0]] * 2),
    jnp.array([[0, 0, 1, 1, 1, 1, 2, 2, 2, -1]] * 2),
)
ROI_INDEX = jnp.array([[[8, 9, 10]] * 2, [[71, 8, 0]] * 2])
ROI_VALID = jnp.array([[[1, 1, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 1]]], bool)
VOLUME = jnp.asarray(RNG.random((2, 4, 8, 16), np.float32))
INPUTS = (VOLUME, TOKENS, VISUAL_INDEX, PACKING, ROI_INDEX, ROI_VALID)


@cache
def boxed_params(config: TumorChainConfig, unrolled: bool) -> dict:
    volume = jnp.zeros((2, *config.encoder.image))
    return jax.eval_shape(TumorChain(config, unrolled).init, KEY, volume, *INPUTS[1:])["params"]


def size(params: dict, part: str) -> int:
    return sum(prod(leaf.shape) for path, leaf in params.items() if path.startswith(part))


@pytest.fixture(scope="module")
def params() -> dict:
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0.1, 0.3, leaf.shape).astype(np.float32)
    return unflatten(jax.tree.map(draw, abstract_params(TINY)))


def run(config: TumorChainConfig, params: dict, *args: jax.Array, method: str) -> jax.Array:
    return jax.jit(partial(TumorChain(config).apply, method=method))({"params": params}, *args)


@pytest.mark.parametrize(
    ("config", "decoder"),
    [(TUMORCHAIN_3B, 3_085_938_688), (TUMORCHAIN_7B, 7_615_616_512)],
    ids=["3B", "7B"],
)
def test_sizes_are_those_of_the_published_models(config: TumorChainConfig, decoder: int) -> None:
    params = abstract_params(config)
    assert size(params, "encoder/") == 87_389_184
    assert size(params, "decoder/") == decoder
    # They compute in bfloat16.
    assert {leaf.dtype.name for leaf in params.values()} == {"float32"}


def assert_axes_are_known(boxed: dict) -> None:
    is_box = lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
    for path, box in jax.tree.leaves_with_path(boxed, is_leaf=is_box):
        assert is_box(box), f"{path} has no axis names"
        assert len(box.names) == box.value.ndim, path
        for name, length in zip(box.names, box.value.shape, strict=True):
            assert name in AXES or (name is None and length == 1), (path, box.names)


@EVERY_CONFIG
def test_every_parameter_axis_has_a_known_name(config: TumorChainConfig) -> None:
    assert_axes_are_known(boxed_params(config, unrolled=False))


def test_every_parameter_axis_of_unrolled_layers_has_a_known_name() -> None:
    assert_axes_are_known(boxed_params(CONFIGS["lora"], unrolled=True))


@EVERY_CONFIG
def test_config_survives_json(config: TumorChainConfig) -> None:
    again = TumorChainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert hash(again) == hash(config)


def test_config_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="roi_slot"):
        TumorChainConfig.from_dict(TINY.to_dict() | {"roi_slot": 3})
    with pytest.raises(ValueError, match="heads"):
        TumorChainConfig.from_dict(TINY.to_dict() | {"encoder": {"heads": 3}})


def test_lora_adds_only_the_named_parameters() -> None:
    plain, adapted = abstract_params(TINY), abstract_params(CONFIGS["lora"])
    layers = ["decoder/layers/self_attn/q_proj", "decoder/layers/self_attn/v_proj"]
    layers += ["encoder/blocks/qkv", "projector/linear1", "projector/linear2"]
    expected = {f"{layer}/lora_{ab}" for layer in layers for ab in "ab"}
    assert adapted.keys() - plain.keys() == expected
    assert plain.items() <= adapted.items()


def test_abstract_parameters_are_those_of_the_module() -> None:
    config = CONFIGS["lora"]
    assert abstract_params(config) == flatten(nn.unbox(boxed_params(config, unrolled=False)))


def test_layout_of_the_visual_tokens() -> None:
    assert TINY.roi == RoiSpec((4, 4, 4), offset=8, slots=3, global_tokens=8)
    from_global = CONFIGS["global"]
    assert from_global.roi == RoiSpec((2, 2, 2), offset=0, slots=3, global_tokens=8)
    assert TUMORCHAIN_3B.roi == RoiSpec((8, 16, 16), offset=256, slots=64, global_tokens=256)


def test_visual_tokens_are_pooled_cells_then_every_cell(params: dict) -> None:
    """And with the ROI from the global tokens, the pooled cells alone."""
    projector = Projector(TINY.projector, TINY.decoder.hidden_size)

    @jax.jit
    def parts(volume: jax.Array) -> tuple[jax.Array, jax.Array]:
        cells = ViT3D(TINY.encoder).apply({"params": params["encoder"]}, volume)
        pooled = pool_cells(cells, (4, 4, 4), 2)
        return tuple(projector.apply({"params": params["projector"]}, x) for x in (pooled, cells))

    pooled, cells = parts(VOLUME)
    visual_tokens = run(TINY, params, VOLUME, method="encode")
    assert visual_tokens.shape == (2, 8 + 64, 12)
    np.testing.assert_allclose(visual_tokens[:, : TINY.roi.global_tokens], pooled, atol=1e-5)
    np.testing.assert_allclose(visual_tokens[:, TINY.roi.offset :], cells, atol=1e-5)
    alone = run(replace(TINY, roi_source="global"), params, VOLUME, method="encode")
    np.testing.assert_allclose(alone, pooled, atol=1e-5)


def test_embed_puts_visual_tokens_at_their_places(params: dict) -> None:
    visual_tokens = np.random.default_rng(1).random((2, 72, 12), np.float32)
    tokens, rows = np.asarray(TOKENS), np.asarray(VISUAL_INDEX)
    got = run(TINY, params, visual_tokens, tokens, rows, method="embed")
    expected = params["decoder"]["embed_tokens"]["embedding"][tokens]
    for scan, place in np.argwhere(rows >= 0):
        expected[scan, place] = visual_tokens[scan, rows[scan, place]]
    np.testing.assert_array_equal(got, expected)


def test_gather_rows_takes_each_scan_s_own() -> None:
    visual_tokens = jnp.arange(2 * 72.0).reshape(2, 72, 1)
    expected = ROI_INDEX + jnp.array([0, 72])[:, None, None]
    np.testing.assert_array_equal(gather_rows(visual_tokens, ROI_INDEX)[..., 0], expected)


def test_every_parameter_learns_from_the_two_outputs(params: dict) -> None:
    def loss(params: dict) -> jax.Array:
        logits, organs = TumorChain(TINY).apply({"params": params}, *INPUTS)
        assert (logits.shape, organs.shape) == ((2, 10, 19), (2, 2, 2))
        return (logits**2).mean() + (organs**2).mean()

    for path, gradient in flatten(jax.jit(jax.grad(loss))(params)).items():
        assert np.isfinite(gradient).all(), path
        assert np.abs(gradient).max() > 0, path


def test_questions_of_a_scan_do_not_meet(params: dict) -> None:
    """Each one, read alone into the cache, gives the logits that training sees."""
    expected, _ = jax.jit(TumorChain(TINY).apply)({"params": params}, *INPUTS)
    model = TumorChain(TINY, unrolled=True)
    variables = {"params": params | {"decoder": unroll(params["decoder"])}}

    @jax.jit
    def read(variables: dict, tokens: jax.Array, visual_index: jax.Array) -> jax.Array:
        visual_tokens = model.apply(variables, VOLUME, method="encode")
        x = model.apply(variables, visual_tokens, tokens, visual_index, method="embed")
        places = tokens.shape[1]
        cache = empty_cache(TINY.decoder, 2, places, jnp.float32)
        length, valid = jnp.zeros(2, jnp.int32), jnp.ones((2, places), bool)
        hidden, *_ = model.apply(variables, cache, length, x, valid, method="extend")
        return model.apply(variables, hidden, method="logits")

    for question in (1, 2):
        places = np.flatnonzero(
            (PACKING.segment_ids[0] == 0) | (PACKING.segment_ids[0] == question)
        )
        got = read(variables, TOKENS[:, places], VISUAL_INDEX[:, places])
        np.testing.assert_allclose(got, expected[:, places], rtol=1e-4, atol=1e-4)


def test_inputs_of_unequal_batches_are_refused(params: dict) -> None:
    visual_tokens = jnp.zeros((3, 72, 12))
    with pytest.raises(TypeCheckError, match="roi_index"):
        run(TINY, params, visual_tokens, ROI_INDEX, ROI_VALID, method="classify")
