from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tumorchain_jax.models.linear import LoRA
from tumorchain_jax.models.qwen2.model import (
    Decoder,
    Qwen2Config,
    RMSNorm,
    empty_cache,
    rotate,
    unroll,
)
from tumorchain_jax.path_rules import flatten

KEY = jax.random.key(0)
TINY = Qwen2Config(
    vocab_size=19,
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    tie_word_embeddings=False,
    rope_theta=1e4,
)
LORA = LoRA((".*/(q_proj|down_proj)",), rank=2)
TOKENS = jax.random.randint(KEY, (3, 12), 0, TINY.vocab_size)


def whole(decoder: Decoder, tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    hidden, layers = decoder(decoder.embed(tokens))
    return hidden, layers, decoder.logits(hidden)


def run(decoder: Decoder, params: dict) -> tuple[jax.Array, jax.Array, jax.Array]:
    return jax.jit(partial(decoder.apply, method=whole))({"params": params}, TOKENS)


def shapes(decoder: Decoder) -> dict:
    init = jax.eval_shape(partial(decoder.init, method=whole), KEY, TOKENS)
    return nn.unbox(init)["params"]


def random_params(decoder: Decoder) -> dict:
    """Larger than at the start of training, no constants: every part of the model matters."""
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32)  # noqa: E731
    return jax.tree.map(draw, shapes(decoder))


@pytest.fixture(scope="module")
def params() -> dict:
    return random_params(Decoder(TINY))


@pytest.mark.parametrize("lora", [None, LORA], ids=["plain", "lora"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_unrolled_equals_scanned_in_outputs_and_gradients(tied: bool, lora: LoRA | None) -> None:
    config = replace(TINY, tie_word_embeddings=tied)
    scanned, unrolled = Decoder(config, lora), Decoder(config, lora, unrolled=True)
    params = random_params(scanned)
    assert jax.tree.structure(unroll(params)) == jax.tree.structure(shapes(unrolled))

    def loss(decoder: Decoder, params: dict) -> tuple[jax.Array, tuple]:
        outputs = decoder.apply({"params": params}, TOKENS, method=whole)
        return (outputs[2] ** 2).mean(), outputs

    one, one_gradient = jax.jit(jax.grad(partial(loss, scanned), has_aux=True))(params)[::-1]
    two, two_gradient = jax.jit(jax.grad(partial(loss, unrolled), has_aux=True))(unroll(params))[
        ::-1
    ]
    for got, expected in zip(two, one, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    two_gradient, one_gradient = flatten(two_gradient), flatten(unroll(one_gradient))
    for path, expected in one_gradient.items():
        assert np.abs(expected).max() > 0, path
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(two_gradient[path], expected, atol=1e-4 * scale, err_msg=path)


def test_lora_adds_only_the_named_parameters() -> None:
    plain, adapted = flatten(shapes(Decoder(TINY))), flatten(shapes(Decoder(TINY, LORA)))
    assert {path: leaf.shape for path, leaf in adapted.items() if path not in plain} == {
        "layers/self_attn/q_proj/lora_a": (2, 16, 2),
        "layers/self_attn/q_proj/lora_b": (2, 2, 24),
        "layers/mlp/down_proj/lora_a": (2, 20, 2),
        "layers/mlp/down_proj/lora_b": (2, 2, 16),
    }
    assert plain.items() <= adapted.items()


def test_lora_starts_silent() -> None:
    adapted = Decoder(TINY, LORA)
    init = jax.jit(partial(adapted.init, method=whole))(KEY, TOKENS)
    both = nn.unbox(init)["params"]
    for with_lora, without in zip(run(adapted, both), run(Decoder(TINY), both), strict=True):
        np.testing.assert_array_equal(with_lora, without)


def test_the_future_is_not_seen(params: dict) -> None:
    changed = TOKENS.at[:, 7].set((TOKENS[:, 7] + 1) % TINY.vocab_size)
    apply = jax.jit(partial(Decoder(TINY).apply, method=whole))
    before, after = (apply({"params": params}, tokens)[0] for tokens in (TOKENS, changed))
    moved = np.abs(before - after).max(-1) > 0
    assert not moved[:, :7].any()
    assert moved[:, 7:].all()


LENGTHS = (12, 5, 9)


def read(params: dict, pieces: list[tuple[jax.Array, jax.Array]]) -> tuple[np.ndarray, tuple, list]:
    """Hidden states of all embeddings read piece by piece, the cache, the lengths."""
    step = jax.jit(partial(Decoder(TINY, unrolled=True).apply, method="extend"))
    cache, length = empty_cache(TINY, 3, max(LENGTHS), jnp.float32), jnp.zeros(3, jnp.int32)
    outputs = []
    for embeddings, valid in pieces:
        hidden, cache, length = step({"params": unroll(params)}, cache, length, embeddings, valid)
        outputs.append(np.asarray(hidden))
    return np.concatenate(outputs, axis=1), cache, length.tolist()


def scattered(params: dict, pad: float) -> tuple[jax.Array, jax.Array]:
    """The first tokens of each row spread over 20 places, in order, with pads between them."""
    rng = np.random.default_rng(1)
    embeddings = np.full((3, 20, TINY.hidden_size), pad, np.float32)
    valid = np.zeros((3, 20), bool)
    for row, length in enumerate(LENGTHS):
        valid[row, rng.choice(20, length, replace=False)] = True
        embeddings[row, valid[row]] = params["embed_tokens"]["embedding"][TOKENS[row, :length]]
    assert not valid[:, 0].all(), "some row starts with a pad"
    return jnp.asarray(embeddings), jnp.asarray(valid)


def test_reading_in_pieces_equals_the_whole_sequence(params: dict) -> None:
    """Rows of unequal length, pads of NaN anywhere, the cache full to the last slot."""
    embeddings, valid = scattered(params, pad=np.nan)
    pieces = [(embeddings[:, i : i + 5], valid[:, i : i + 5]) for i in range(0, 20, 5)]
    hidden, cache, lengths = read(params, pieces)
    expected = np.asarray(run(Decoder(TINY), params)[0])
    assert lengths == list(LENGTHS)
    for row, length in enumerate(LENGTHS):
        got = hidden[row, np.asarray(valid)[row]]
        np.testing.assert_allclose(got, expected[row, :length], rtol=1e-4, atol=1e-5)
        for layer in cache:
            for slots in layer:
                used = np.abs(slots[row]).max((-1, -2)) > 0
                assert used.tolist() == [s < length for s in range(max(LENGTHS))]


def test_one_piece_equals_many(params: dict) -> None:
    embeddings, valid = scattered(params, pad=0.0)
    single = [(embeddings[:, i : i + 1], valid[:, i : i + 1]) for i in range(20)]
    many, many_cache, _ = read(params, single)
    one, one_cache, _ = read(params, [(embeddings, valid)])
    np.testing.assert_allclose(one[valid], many[valid], rtol=1e-4, atol=1e-5)
    for got, expected in zip(jax.tree.leaves(one_cache), jax.tree.leaves(many_cache), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_pad_never_changes_a_result(params: dict) -> None:
    zeros, nans = scattered(params, pad=0.0), scattered(params, pad=np.nan)
    with_zeros, zeros_cache, _ = read(params, [zeros])
    with_nans, nans_cache, _ = read(params, [nans])
    np.testing.assert_array_equal(with_zeros[zeros[1]], with_nans[zeros[1]])
    jax.tree.map(np.testing.assert_array_equal, zeros_cache, nans_cache)


def test_a_piece_of_pads_alone_is_read_as_nothing(params: dict) -> None:
    embeddings, valid = scattered(params, pad=0.0)
    _, before, _ = read(params, [(embeddings, valid)])
    pads = (embeddings, jnp.zeros_like(valid))
    _, after, lengths = read(params, [pads, (embeddings, valid), pads])
    assert lengths == list(LENGTHS)
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_empty_cache_has_its_own_arrays() -> None:
    leaves = jax.tree.leaves(empty_cache(TINY, 3, 12, jnp.bfloat16))
    assert {(leaf.shape, leaf.dtype.name) for leaf in leaves} == {((3, 12, 2, 6), "bfloat16")}
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == 2 * TINY.num_hidden_layers


def test_rotation_pairs_halves_and_depends_on_distance_alone() -> None:
    x = np.zeros((1, 2, 1, 6), np.float32)
    x[0, 1, 0, [0, 1, 2]] = 1
    turned = rotate(jnp.asarray(x), jnp.array([[0, 5]]), 1e4)
    angles = 5 / 1e4 ** (np.arange(3) / 3)
    expected = np.concatenate([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(turned[0, 1, 0], expected, atol=1e-6)

    q, k = jax.random.normal(KEY, (2, 1, 1, 1, 6))
    at = lambda x, position: rotate(x, jnp.array([[position]]), 1e4)[0, 0, 0]  # noqa: E731
    np.testing.assert_array_equal(at(q, 0), q[0, 0, 0])
    np.testing.assert_allclose(at(q, 9) @ at(k, 4), at(q, 105) @ at(k, 100), atol=1e-5)


def test_rms_norm_is_float32_inside() -> None:
    x = 300 * jax.random.normal(KEY, (1, 2, 64), jnp.bfloat16)
    weight = jax.random.normal(jax.random.key(1), (64,))
    got = RMSNorm(1e-6, jnp.bfloat16).apply({"params": {"weight": weight}}, x)
    assert got.dtype == jnp.bfloat16
    exact = np.asarray(x, np.float64)
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6)
    # Rounded three times to 8 bits: the norm, the weight, their product.
    np.testing.assert_allclose(np.asarray(got, np.float64), exact * weight, rtol=3 * 2**-8)


def test_wrong_shapes_are_refused() -> None:
    decoder = Decoder(TINY)
    with pytest.raises(TypeCheckError, match="tokens"):
        decoder.init(KEY, jnp.zeros(4, jnp.int32), method="embed")
    with pytest.raises(TypeCheckError, match="tokens"):
        decoder.init(KEY, jnp.zeros((1, 4)), method="embed")
    with pytest.raises(TypeCheckError, match="valid"):
        decoder.init(
            KEY,
            empty_cache(TINY, 2, 4, jnp.float32),
            jnp.zeros(2, jnp.int32),
            jnp.zeros((2, 3, 16)),
            jnp.ones((2, 4), bool),
            method="extend",
        )
