"""Multimodal rotary positions against transformers' Qwen2.5-VL text model, weights random."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.models.language.qwen2.convert import TABLE
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, empty_cache, unroll

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Largest difference of a hidden state over its largest value, in float32.
TOLERANCE = 1e-5
CONFIG = Qwen2Config(71, 48, 56, 3, 3, 1, 16, True, mrope_section=(2, 3, 3))
B, T = 2, 17


def text_model() -> Any:
    rope = {"rope_type": "default", "rope_theta": CONFIG.rope_theta, "mrope_section": [2, 3, 3]}
    config = transformers.Qwen2_5_VLTextConfig(
        vocab_size=CONFIG.vocab_size,
        hidden_size=CONFIG.hidden_size,
        intermediate_size=CONFIG.intermediate_size,
        num_hidden_layers=CONFIG.num_hidden_layers,
        num_attention_heads=CONFIG.num_attention_heads,
        num_key_value_heads=CONFIG.num_key_value_heads,
        rms_norm_eps=CONFIG.rms_norm_eps,
        rope_parameters=rope,
        attn_implementation="eager",
    )
    return transformers.Qwen2_5_VLTextModel(config)


@pytest.fixture(scope="module")
def model(randomised: Callable[..., Any]) -> Any:
    return randomised(text_model())


@pytest.fixture(scope="module")
def params(model: Any, load_weights: Callable[..., dict]) -> dict:
    decoder, tokens = Decoder(CONFIG), jnp.zeros((1, 2), jnp.int32)
    init = partial(decoder.init, method=lambda d, x: d(d.embed(x))[0])
    like = nn.unbox(jax.eval_shape(init, jax.random.key(0), tokens))["params"]
    theirs = {f"model.{key}": value.numpy() for key, value in model.state_dict().items()}
    return load_weights(TABLE, theirs, like)


@pytest.fixture(params=["random", "equal", "one-row"])
def positions(request: pytest.FixtureRequest) -> np.ndarray:
    rng = np.random.default_rng(1)
    if request.param == "random":
        return rng.integers(0, 900, (3, B, T))
    one = np.sort(rng.integers(0, 900, (B, T)), axis=1)
    return one if request.param == "one-row" else np.broadcast_to(one, (3, B, T)).copy()


def test_mrope_hidden_states_are_those_of_qwen2_5_vl(
    positions: np.ndarray, model: Any, params: dict
) -> None:
    x = np.random.default_rng(2).normal(0, 1, (B, T, CONFIG.hidden_size)).astype(np.float32)
    with torch.no_grad():
        expected = model(
            inputs_embeds=torch.from_numpy(x), position_ids=torch.from_numpy(positions)
        ).last_hidden_state.numpy()
        plain = model(inputs_embeds=torch.from_numpy(x)).last_hidden_state.numpy()
    largest = np.abs(expected).max()
    assert np.abs(expected - plain).max() > 0.1 * largest, "positions make a difference"
    x, call = jnp.asarray(x), lambda d, x, positions: d(x, positions=positions)[0]
    got = Decoder(CONFIG).apply({"params": params}, x, jnp.asarray(positions), method=call)
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE * largest

    decoder = Decoder(CONFIG, unrolled=True)
    cache = empty_cache(CONFIG, B, T, jnp.float32)
    cached, *_ = decoder.apply(
        {"params": unroll(params)},
        cache,
        jnp.zeros(B, jnp.int32),
        x,
        jnp.ones((B, T), bool),
        jnp.asarray(positions),
        method="extend",
    )
    assert np.abs(np.asarray(cached) - expected).max() <= TOLERANCE * largest
