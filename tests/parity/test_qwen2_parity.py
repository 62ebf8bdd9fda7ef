"""The decoder against transformers' Qwen2 and PEFT's LoRA, with the same random weights."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import decoder_to_dict
from tumorchain_jax.models.language.qwen2.convert import read_config, transformers_config
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, empty_cache, unroll
from tumorchain_jax.models.layers.linear import LoRA

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
    named = decoder_to_dict(config)
    rope = {"rope_type": "default", "rope_theta": named.pop("rope_theta")}
    return {**named, "rope_parameters": rope}


def random_qwen2(config: Qwen2Config):
    theirs = transformers.Qwen2Config(**sizes(config), attn_implementation="eager")
    return randomise(transformers.Qwen2ForCausalLM(theirs))


def load(model, folder: Path) -> dict[str, Any]:
    """The decoder's parameters, imported from a saved model."""
    model.save_pretrained(folder / "theirs")
    import_folder(folder / "theirs", folder / "ours")
    return Imported(folder / "ours").restore()["decoder"]


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


def random_tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 71, shape)


def assert_hidden_close(got: Array, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_HIDDEN * np.abs(expected).max()


def assert_logits_close(got: Array, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_LOGITS


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_reading_in_pieces_equals_transformers(
    config: Qwen2Config, tmp_path: Path, torch_outputs: Outputs
) -> None:
    """Rows of 17, 9 and 13 tokens enter in pieces of 7, pads anywhere between them."""
    model, decoder = random_qwen2(config), Decoder(config, unrolled=True)
    params = unroll(load(model, tmp_path))
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
    random_qwen2(TIED).save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    with pytest.raises(InputError, match=r"lm_head\.weight: found no such array"):
        import_folder(tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_lora_equals_peft(tmp_path: Path, torch_outputs: Outputs) -> None:
    peft = pytest.importorskip("peft")
    config, rank, alpha = UNTIED, 4, 12.0
    base, tokens = random_qwen2(config), random_tokens(2, 11)
    base.save_pretrained(tmp_path / "base")
    plain = torch_outputs(base, tokens)
    adapted = peft.get_peft_model(
        base, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["q_proj", "down_proj"])
    )
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0, 0.2)
    adapted.eval().save_pretrained(tmp_path / "adapter")

    lora = LoRA((".*/(q_proj|down_proj)",), rank, alpha)
    decoder = Decoder(config, lora)
    import_folder(tmp_path / "base", tmp_path / "ours")
    import_folder(tmp_path / "adapter", tmp_path / "low", base=tmp_path / "base")
    flat = [flatten(Imported(tmp_path / name).restore()["decoder"]) for name in ("ours", "low")]
    params = unflatten(flat[0] | flat[1])
    hidden, layers, logits = torch_outputs(adapted, tokens)
    got = run(decoder, params, tokens)
    assert np.abs(logits - plain[2]).max() > 1, "the adapter does something"
    assert_hidden_close(got[0], hidden)
    assert_hidden_close(got[1], layers)
    assert_logits_close(got[2], logits)


def test_heads_that_do_not_divide_the_hidden_size_open_in_transformers(
    tmp_path: Path,
) -> None:
    """Without biases: transformers' Llama refuses them, its Mistral does not."""
    config = replace(tiny(5, 1, True), attention_bias=False)
    fields = transformers_config(config)
    (tmp_path / "config.json").write_text(json.dumps(fields))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (theirs.model_type, theirs.head_dim, theirs.sliding_window) == ("mistral", 8, None)
    assert read_config(tmp_path / "config.json", fields) == config
