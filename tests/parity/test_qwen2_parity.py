"""The decoder against transformers' Qwen2 and PEFT's LoRA, with the same random weights."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int
from safetensors.numpy import load_file

from tumorchain_jax.models.language.qwen2.convert import IGNORE, LORA_TABLE, TABLE
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, empty_cache, unroll
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import from_ours, to_ours

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# In float32: largest difference of a hidden state over its largest value; of a logit.
TOLERANCE_HIDDEN = 1e-5
TOLERANCE_LOGITS = 1e-4
Outputs = Callable[[Any, np.ndarray], tuple[Any, Any, Any]]


def tiny(heads: int, kv_heads: int, tied: bool) -> Qwen2Config:
    """A hidden size that is not heads x head size, so that neither can stand for the other."""
    return Qwen2Config(
        vocab_size=71,
        hidden_size=48,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=8,
        tie_word_embeddings=tied,
    )


TIED, UNTIED = tiny(16, 2, True), tiny(28, 4, False)


def randomise(model):
    """Every parameter random, biases and norms too: a constant one would hide a mix-up."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, float("norm" in name), 0.2)
    return model.eval()


def sizes(config: Qwen2Config) -> dict[str, Any]:
    """Our config as keyword arguments of theirs."""
    named = asdict(config)
    rope = {"rope_type": "default", "rope_theta": named.pop("rope_theta")}
    return {**named, "rope_parameters": rope}


def random_qwen2(config: Qwen2Config):
    theirs = transformers.Qwen2Config(**sizes(config), attn_implementation="eager")
    return randomise(transformers.Qwen2ForCausalLM(theirs))


def released(model, folder: Path) -> dict[str, np.ndarray]:
    """The state dict as it stands in a checkpoint file."""
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def whole(
    decoder: Decoder, tokens: Int[Array, "B T"]
) -> tuple[Float[Array, "B T K"], Float[Array, "L B T K"], Float[Array, "B T V"]]:
    hidden, layers = decoder(decoder.embed(tokens))
    return hidden, layers, decoder.logits(hidden)


def extend(
    decoder: Decoder, cache: tuple, length: Array, tokens: Int[Array, "B T"], valid: Array
) -> tuple[Float[Array, "B T K"], Float[Array, "B T V"], tuple, Array]:
    hidden, cache, length = decoder.extend(cache, length, decoder.embed(tokens), valid)
    return hidden, decoder.logits(hidden), cache, length


def run(decoder: Decoder, params: dict, tokens: np.ndarray) -> tuple:
    return jax.jit(partial(decoder.apply, method=whole))({"params": params}, tokens)


def shapes(decoder: Decoder) -> dict:
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    init = jax.eval_shape(lambda x: decoder.init(jax.random.key(0), x, method=whole), tokens)
    return nn.unbox(init)["params"]


def random_tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 71, shape)


def assert_hidden_close(got: Array, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_HIDDEN * np.abs(expected).max()


def assert_logits_close(got: Array, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_LOGITS


def assert_identical(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert got.keys() == expected.keys()
    for key, value in got.items():
        assert value.dtype == expected[key].dtype, key
        assert value.shape == expected[key].shape, key
        assert value.tobytes() == expected[key].tobytes(), key


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_reading_in_pieces_equals_transformers(
    config: Qwen2Config, tmp_path: Path, torch_outputs: Outputs
) -> None:
    """Rows of 17, 9 and 13 tokens enter in pieces of 7, pads anywhere between them."""
    model, decoder = random_qwen2(config), Decoder(config, unrolled=True)
    params = unroll(to_ours(TABLE, released(model, tmp_path), shapes(Decoder(config)), IGNORE))
    rng, lengths, total = np.random.default_rng(3), (17, 9, 13), 28
    tokens, valid = random_tokens(3, total), np.zeros((3, total), bool)
    for row, count in enumerate(lengths):
        valid[row, rng.choice(total, count, replace=False)] = True

    step = jax.jit(partial(decoder.apply, method=extend))
    cache, length = empty_cache(config, 3, max(lengths), jnp.float32), jnp.zeros(3, jnp.int32)
    pieces = []
    for piece in (slice(start, start + 7) for start in range(0, total, 7)):
        *outputs, cache, length = step(
            {"params": params}, cache, length, tokens[:, piece], valid[:, piece]
        )
        pieces.append(outputs)
    hidden, logits = (jnp.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True))

    assert length.tolist() == list(lengths)
    for row in range(3):
        expected = torch_outputs(model, tokens[row, valid[row]][None])
        assert_hidden_close(hidden[row, valid[row]], expected[0][0])
        assert_logits_close(logits[row, valid[row]], expected[2][0])


def test_weights_of_a_tied_model_are_refused_by_an_untied_one(tmp_path: Path) -> None:
    theirs = released(random_qwen2(TIED), tmp_path)
    untied = Decoder(replace(TIED, tie_word_embeddings=False))
    with pytest.raises(ValueError, match=r"missing lm_head\.weight"):
        to_ours(TABLE, theirs, shapes(untied), IGNORE)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_lora_equals_peft(tmp_path: Path, torch_outputs: Outputs) -> None:
    peft = pytest.importorskip("peft")
    config, rank, alpha = UNTIED, 4, 12.0
    base, tokens = random_qwen2(config), random_tokens(2, 11)
    weights = released(base, tmp_path)
    plain = torch_outputs(base, tokens)
    adapted = peft.get_peft_model(
        base, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["q_proj", "down_proj"])
    )
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0, 0.2)
    adapted.eval().save_pretrained(tmp_path)
    adapter = load_file(tmp_path / "adapter_model.safetensors")

    lora = LoRA((".*/(q_proj|down_proj)",), rank, alpha)
    decoder, table = Decoder(config, lora), (*TABLE, *LORA_TABLE)
    params = to_ours(table, weights | adapter, shapes(decoder), IGNORE)
    hidden, layers, logits = torch_outputs(adapted, tokens)
    got = run(decoder, params, tokens)
    assert np.abs(logits - plain[2]).max() > 1, "the adapter does something"
    assert_hidden_close(got[0], hidden)
    assert_hidden_close(got[1], layers)
    assert_logits_close(got[2], logits)
    assert_identical(from_ours(table, params), weights | adapter)
