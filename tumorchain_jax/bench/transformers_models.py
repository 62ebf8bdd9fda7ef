"""Reference of the decoder benchmarks: transformers' Qwen2 on PyTorch, with the same weights."""

import os
from importlib.util import find_spec
from typing import Any

import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.convert import TABLE, transformers_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.weight_map import from_ours
from tumorchain_jax.weights.matching import decoder_shapes

QWEN2_5_HALF_B = Qwen2Config(
    vocab_size=151_936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    tie_word_embeddings=True,
)
"""Sizes of Qwen2.5-0.5B."""


def random_decoder(config: Qwen2Config) -> dict[str, Any]:
    """Random parameters, layers stacked."""
    rng = np.random.default_rng(0)
    return unflatten(
        {
            path: jnp.asarray("norm" in path, jnp.float32) + 0.02 * rng.standard_normal(shape, "f4")
            for path, shape in decoder_shapes(config).items()
        }
    )


def require(*packages: str) -> None:
    """Refuse to continue without the packages of the reference.

    Raises:
        InputError: one of them is not installed.
    """
    for package in packages:
        if find_spec(package) is None:
            expected, hint = f"{package}, the reference", "install tumorchain-jax[parity]"
            raise InputError("bench", package, "no such package", expected, hint)


def transformers_model(config: Qwen2Config, params: dict[str, Any]) -> Any:
    """Make the same model in transformers, float32, on as many threads as there are cores.

    Raises:
        InputError: PyTorch is not installed.
    """
    require("torch")
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    fields = transformers_config(config)
    reference = transformers.Qwen2Config(**{k: fields[k] for k in fields.keys() - {"rope_theta"}})
    with torch.device("meta"):
        model = transformers.Qwen2ForCausalLM(reference)
    state = {key: torch.from_numpy(value.copy()) for key, value in from_ours(TABLE, params).items()}
    model = model.to_empty(device="cpu")
    model.load_state_dict(state, strict=not config.tie_word_embeddings)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(reference)  # has no weights, but buffers
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model.eval()
