"""Benchmark of prefill and decode against transformers' `generate`."""

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
    """Measure seconds of prefill and tokens a second of decoding, and the speedups.

    Both run the same random weights, float32, on the same threads, greedily. `same text` is the
    share of tokens on which they agree.

    Raises:
        InputError: PyTorch is not installed.
    """
    stacked = random_decoder(config)
    model = transformers_model(config, stacked)
    params, decoder = unroll(stacked), Decoder(config, unrolled=True)
    del stacked
    values: dict[str, float] = {}
    for batch in tqdm(batches, desc="batch sizes", disable=None):
        tokens = np.random.default_rng(batch).integers(0, config.vocab_size, (batch, prompt))
        ours = _ours(decoder, params, tokens, new)
        reference = _reference(model, tokens, new)
        prefill_s, reference_prefill_s = (seconds(side[0], repeats) for side in (ours, reference))
        decode_s = seconds(ours[1], repeats) - prefill_s
        reference_decode_s = seconds(reference[1], repeats) - reference_prefill_s
        same = np.mean(np.asarray(ours[1]()) == np.asarray(reference[1]()))
        name = f"batch {batch}"
        values |= {
            f"{name}: prefill of {prompt}, s": prefill_s,
            f"{name}: prefill of transformers, s": reference_prefill_s,
            f"{name}: prefill, speedup": reference_prefill_s / prefill_s,
            f"{name}: decode, tokens a second": batch * new / decode_s,
            f"{name}: decode of transformers, tokens a second": batch * new / reference_decode_s,
            f"{name}: decode, speedup": reference_decode_s / decode_s,
            f"{name}: same text, share": float(same),
        }
    return values


def _ours(decoder: Decoder, params: Any, tokens: np.ndarray, new: int) -> tuple[Any, Any]:
    """Our prefill alone; prefill and decode."""
    batch, prompt = tokens.shape
    ids, valid = jnp.asarray(tokens, jnp.int32), jnp.ones(tokens.shape, bool)
    nothing_ends, keys = jnp.asarray([-1]), jax.random.split(jax.random.key(0), batch)
    read = partial(read_text, decoder, params, ids, valid, slots=prompt + new)

    def write() -> jax.Array:
        return continue_text(decoder, params, ids, valid, nothing_ends, keys, limit=new)[0]

    return read, write


def _reference(model: Any, tokens: np.ndarray, new: int) -> tuple[Any, Any]:
    """The same two pieces of work in transformers."""
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
