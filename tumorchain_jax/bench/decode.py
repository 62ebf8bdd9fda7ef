"""Reading a prompt and writing text with the decoder, beside transformers' `generate`."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from tumorchain_jax.bench.timing import REPEATS, seconds
from tumorchain_jax.bench.transformers_models import (
    QWEN2_5_HALF_B,
    random_decoder,
    transformers_model,
)
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, unroll
from tumorchain_jax.reasoning.text import continue_text, read_text


def bench_decode(
    config: Qwen2Config = QWEN2_5_HALF_B,
    prompt: int = 512,
    new: int = 128,
    batches: tuple[int, ...] = (1, 4),
    repeats: int = REPEATS,
) -> dict[str, float]:
    """Seconds of prefill, tokens a second of decoding, and how many times as fast as the peer.

    The same random weights, float32, the same threads, greedy. `same text` is the share of tokens
    that both wrote alike.

    Raises:
        InputError: PyTorch is not here.
    """
    stacked = random_decoder(config)
    peer = transformers_model(config, stacked)
    params, decoder = unroll(stacked), Decoder(config, unrolled=True)
    del stacked
    values: dict[str, float] = {}
    for batch in tqdm(batches, desc="batch sizes", disable=None):
        tokens = np.random.default_rng(batch).integers(0, config.vocab_size, (batch, prompt))
        ours = _ours(decoder, params, tokens, new)
        theirs = _theirs(peer, tokens, new)
        read_s, their_read_s = seconds(ours[0], repeats), seconds(theirs[0], repeats)
        write_s = seconds(ours[1], repeats) - read_s
        their_write_s = seconds(theirs[1], repeats) - their_read_s
        same = np.mean(np.asarray(ours[1]()) == np.asarray(theirs[1]()))
        name = f"batch {batch}"
        values |= {
            f"{name}: prefill of {prompt}, s": read_s,
            f"{name}: prefill of transformers, s": their_read_s,
            f"{name}: prefill, times as fast": their_read_s / read_s,
            f"{name}: decode, tokens a second": batch * new / write_s,
            f"{name}: decode of transformers, tokens a second": batch * new / their_write_s,
            f"{name}: decode, times as fast": their_write_s / write_s,
            f"{name}: same text, share": float(same),
        }
    return values


def _ours(decoder: Decoder, params: Any, tokens: np.ndarray, new: int) -> tuple[Any, Any]:
    """Reading alone; reading and writing."""
    batch, prompt = tokens.shape
    ids, valid = jnp.asarray(tokens, jnp.int32), jnp.ones(tokens.shape, bool)
    nothing_ends, keys = jnp.asarray([-1]), jax.random.split(jax.random.key(0), batch)
    read = partial(read_text, decoder, params, ids, valid, slots=prompt + new)

    def write() -> jax.Array:
        return continue_text(decoder, params, ids, valid, nothing_ends, keys, limit=new)[0]

    return read, write


def _theirs(model: Any, tokens: np.ndarray, new: int) -> tuple[Any, Any]:
    import torch

    ids = torch.from_numpy(tokens)
    seen = torch.ones_like(ids)

    @torch.no_grad()
    def read() -> None:
        model(ids, attention_mask=seen, use_cache=True, logits_to_keep=1)

    @torch.no_grad()
    def write() -> np.ndarray:
        return model.generate(ids, attention_mask=seen, max_new_tokens=new, eos_token_id=None)[
            :, tokens.shape[1] :
        ].numpy()

    return read, write
