from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.language.qwen2.model import (
    Decoder,
    Qwen2Config,
    RMSNorm,
    empty_cache,
    rotate,
    unroll,
)
from tumorchain_jax.models.layers.attention import Packing, one_sequence
from tumorchain_jax.models.layers.linear import LoRA

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
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, TINY.vocab_size, (3, 12)))


def whole(decoder: Decoder, tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    hidden, layers = decoder(decoder.embed(tokens))
    return hidden, layers, decoder.logits(hidden)


def shapes(decoder: Decoder) -> dict:
    init = jax.eval_shape(partial(decoder.init, method=whole), KEY, TOKENS)
    return nn.unbox(init)["params"]


def random_params(decoder: Decoder) -> dict:
    """Larger than at the start of training, no constants: every part of the model matters."""
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32)
    return jax.tree.map(draw, shapes(decoder))


run = jax.jit(partial(Decoder(TINY).apply, method=whole))
step = jax.jit(partial(Decoder(TINY, unrolled=True).apply, method="extend"))


@pytest.fixture(scope="module")
def params() -> dict:
    return random_params(Decoder(TINY))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_unrolled_equals_scanned(tied: bool) -> None:
    config = replace(TINY, tie_word_embeddings=tied)
    scanned, unrolled = Decoder(config, LORA), Decoder(config, LORA, unrolled=True)
    params = random_params(scanned)
    assert jax.tree.structure(unroll(params)) == jax.tree.structure(shapes(unrolled))
    one = jax.jit(partial(scanned.apply, method=whole))({"params": params}, TOKENS)
    two = jax.jit(partial(unrolled.apply, method=whole))({"params": unroll(params)}, TOKENS)
    for got, expected in zip(two, one, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.system(haste=True)
def test_unrolled_equals_scanned_in_gradients() -> None:
    scanned, unrolled = Decoder(TINY, LORA), Decoder(TINY, LORA, unrolled=True)
    params = random_params(scanned)

    def gradient(decoder: Decoder, params: dict) -> dict:
        def loss(params: dict) -> jax.Array:
            *_, logits = decoder.apply({"params": params}, TOKENS, method=whole)
            return (logits**2).mean()

        return jax.jit(jax.grad(loss))(params)

    got = flatten(gradient(unrolled, unroll(params)))
    for path, expected in flatten(unroll(gradient(scanned, params))).items():
        largest = np.abs(expected).max()
        assert largest > 0, path
        assert np.abs(got[path] - expected).max() < 1e-3 * largest, path


def test_lora_adds_only_the_named_parameters() -> None:
    plain, adapted = flatten(shapes(Decoder(TINY))), flatten(shapes(Decoder(TINY, LORA)))
    assert {path: leaf.shape for path, leaf in adapted.items() if path not in plain} == {
        "layers/self_attn/q_proj/lora_a": (2, 16, 2),
        "layers/self_attn/q_proj/lora_b": (2, 2, 24),
        "layers/mlp/down_proj/lora_a": (2, 20, 2),
        "layers/mlp/down_proj/lora_b": (2, 2, 16),
    }
    assert plain.items() <= adapted.items()


def test_the_future_is_not_seen(params: dict) -> None:
    changed = np.array(TOKENS)
    changed[:, 7] = (changed[:, 7] + 1) % TINY.vocab_size
    before, after = (run({"params": params}, tokens)[0] for tokens in (TOKENS, changed))
    moved = np.abs(before - after).max(-1) > 0
    assert not moved[:, :7].any()
    assert moved[:, 7:].all()


# A prefix of 3, questions of 4 and 3, two pads.
OWNER = jnp.array([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, -1, -1]] * 3)
POSITIONS = jnp.array([[0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 0, 0]] * 3)


def packed(params: dict, tokens: np.ndarray, packing: Packing) -> np.ndarray:
    def hidden(decoder: Decoder, tokens: jax.Array, packing: Packing) -> jax.Array:
        return decoder(decoder.embed(tokens), packing)[0]

    apply = jax.jit(partial(Decoder(TINY).apply, method=hidden))
    return np.asarray(apply({"params": params}, tokens, packing))


def test_questions_in_one_row_are_as_alone(params: dict) -> None:
    found = packed(params, np.asarray(TOKENS), Packing(POSITIONS, OWNER))
    for question in (1, 2):
        places = np.flatnonzero((OWNER[0] == 0) | (OWNER[0] == question))
        alone = packed(params, np.asarray(TOKENS)[:, places], one_sequence(3, len(places)))
        np.testing.assert_allclose(found[:, places], alone, rtol=0, atol=1e-5)
    in_place = packed(params, np.asarray(TOKENS), one_sequence(3, 12)._replace(segment_ids=OWNER))
    assert np.abs(in_place - found)[:, 7:10].max() > 1e-3, "positions matter"


def test_another_question_and_pads_are_not_seen(params: dict) -> None:
    changed = np.array(TOKENS)
    changed[:, 3] = (changed[:, 3] + 1) % TINY.vocab_size
    changed[:, 10] = (changed[:, 10] + 1) % TINY.vocab_size
    packing = Packing(POSITIONS, OWNER)
    before, after = (packed(params, tokens, packing) for tokens in (np.asarray(TOKENS), changed))
    moved = np.abs(before - after).max((0, 2)) > 0
    assert moved.tolist() == [number in (3, 4, 5, 6, 10, 11) for number in range(12)]


LENGTHS = (12, 5, 9)


def read(params: dict, pieces: list[tuple[jax.Array, jax.Array]]) -> tuple[np.ndarray, tuple, list]:
    """Hidden states of all embeddings read piece by piece, the cache, the lengths."""
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
    expected = np.asarray(run({"params": params}, TOKENS)[0])
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
    pieces = [(embeddings[:, i : i + 5], valid[:, i : i + 5]) for i in range(0, 20, 5)]
    many, many_cache, _ = read(params, pieces)
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
    turn = jax.jit(partial(rotate, theta=1e4))
    x = np.zeros((1, 2, 1, 6), np.float32)
    x[0, 1, 0, :3] = 1
    angles = 5 / 1e4 ** (np.arange(3) / 3)
    expected = np.concatenate([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(turn(x, np.array([[0, 5]]))[0, 1, 0], expected, atol=1e-6)

    x = np.random.default_rng(0).random((1, 2, 1, 6), np.float32)
    near, far, here = (turn(x, np.array([pair]))[0, :, 0] for pair in ([9, 4], [105, 100], [0, 0]))
    np.testing.assert_array_equal(here, x[0, :, 0])
    np.testing.assert_allclose(near[0] @ near[1], far[0] @ far[1], rtol=1e-4)


def test_rms_norm_is_float32_inside() -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(300 * rng.standard_normal((1, 2, 64)), jnp.bfloat16)
    weight = rng.standard_normal(64, np.float32)
    got = jax.jit(RMSNorm(1e-6, jnp.bfloat16).apply)({"params": {"weight": weight}}, x)
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


def test_a_decoder_without_biases_has_none() -> None:
    for biased in (True, False):
        decoder = Decoder(replace(TINY, attention_bias=biased))
        init = jax.eval_shape(
            lambda x, d=decoder: d.init(jax.random.key(0), x, method=whole), jnp.zeros((1, 2), int)
        )
        assert ("bias" in init["params"]["layers"]["self_attn"]["q_proj"]) is biased
