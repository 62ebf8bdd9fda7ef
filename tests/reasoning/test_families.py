"""The reasoning loop with another encoder and decoder: Merlin's ResNet and Qwen3, tiny."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import unroll
from tumorchain_jax.models.language.qwen3.model import Qwen3Config
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.models.vision.resnet3d.model import ResNet3DConfig
from tumorchain_jax.reasoning.interleaved import LoopConfig, Request, encode, reason
from tumorchain_jax.reasoning.organ_matcher import build_matcher
from tumorchain_jax.reasoning.prompt import Chat, Interleaved
from tumorchain_jax.reasoning.roi import Turn, build_roi_prompt

MODEL = TumorChainConfig(
    ResNet3DConfig((32, 32, 64), (1, 1, 2, 1), 4),
    Qwen3Config(512, 24, 32, 2, 4, 2, 16, False),
    global_pool=1,
    roi_slots=4,
)
ROOM, TOKENS = 96, 12
LIVER = ORGANS.index("liver")
LOOP = LoopConfig(ROOM, max_rounds=2, tokens_per_round=TOKENS)


@pytest.fixture(scope="module")
def params() -> dict:
    rng = np.random.default_rng(0)

    def draw(path: str, leaf: Any) -> jax.Array:
        if path.endswith("running_var"):
            return jnp.float32(rng.uniform(0.5, 2, leaf.shape))
        return jnp.float32(rng.normal(float("scale" in path), 0.3, leaf.shape))

    return unflatten({path: draw(path, leaf) for path, leaf in abstract_params(MODEL).items()})


def request_of(visual_tokens: jax.Array, prompt: Interleaved, rows: np.ndarray) -> Request:
    turn, start = np.zeros((2, 1, ROOM), np.int32), ROOM - len(prompt)
    turn[:, 0, start:] = prompt.tokens, prompt.visual_index
    valid = np.arange(ROOM)[None] >= start
    return Request(
        visual_tokens,
        jnp.asarray(rows),
        jnp.asarray(rows > 0),
        Turn(*map(jnp.asarray, (*turn, valid))),
        jnp.zeros((1, len(ORGANS)), bool),
        jnp.full(1, 2),
        jnp.full(1, 100),
        jax.random.key(0)[None],
    )


@pytest.mark.system(haste=True)
def test_loop_writes_what_the_scanned_decoder_says(params: dict, chat: Chat) -> None:
    """Greedy tokens and the log-probability of each, against the whole sequence without a cache."""
    chat = Chat(chat.tokenizer, MODEL.template)
    rng = np.random.default_rng(1)
    volume = jnp.float32(rng.random((1, *MODEL.encoder.image)))
    rows = np.zeros((1, len(ORGANS), MODEL.roi_slots), np.int32)
    rows[0, LIVER, :2] = MODEL.roi.offset + np.arange(2)
    unrolled = params | {"decoder": unroll(params["decoder"])}
    model = TumorChain(MODEL, unrolled=True)
    visual_tokens, *_, abnormal = encode(
        model, unrolled, volume, jnp.asarray(rows), jnp.asarray(rows > 0)
    )
    assert visual_tokens.shape == (1, MODEL.roi.global_tokens + 4, 24)
    assert np.ptp(visual_tokens[0], axis=0).max() > 0.1, "cells differ"
    assert bool(jnp.isfinite(abnormal).all())

    prompt = chat.question("Is the liver ill?", (), MODEL.roi.global_tokens)
    matcher, roi_prompt = build_matcher(chat.tokenizer.token_bytes), build_roi_prompt(chat)
    result = reason(
        model, LOOP, unrolled, matcher, roi_prompt, request_of(visual_tokens, prompt, rows)
    )
    length = int(result.written.length[0, 0])
    assert length > 0
    assert int(result.tokens_in[0, 0]) == len(prompt)
    tokens = result.written.tokens[0, 0, :length].tolist()

    written = Interleaved()
    written.add(tokens)
    row = prompt + written
    ids, visual_index = jnp.array([row.tokens]), jnp.array([row.visual_index])
    whole = TumorChain(MODEL)
    embeddings = run(whole, params, visual_tokens, ids, visual_index, method="embed")

    def read(model: TumorChain, embeddings: jax.Array) -> jax.Array:
        hidden, _ = model.decoder(embeddings, one_sequence(1, len(row)))
        return model.decoder.logits(hidden)

    logits = np.asarray(jax.jit(partial(whole.apply, method=read))({"params": params}, embeddings))[
        0
    ]
    expected = logits[len(prompt) - 1 : -1]
    log_probs = np.asarray(jax.nn.log_softmax(expected, axis=-1)).max(axis=-1)
    np.testing.assert_allclose(
        result.written.log_probabilities[0, 0, :length], log_probs, atol=1e-4
    )
    assert expected.argmax(axis=-1).tolist() == tokens
