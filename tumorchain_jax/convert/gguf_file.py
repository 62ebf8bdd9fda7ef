"""Reader of Llama-family GGUF files: the Hugging Face folder each was made from, in float32.

GGUF is llama.cpp's one-file format: weights, often quantised, with configuration and tokenizer.
Its converter reorders the rows of q and k for interleaved rotary embedding; here they are put back
to the half-split order of the original.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import transformers_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.weights.tensor_files import TensorWriter

TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SIZES = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
CONTROL = 3
"""Type of a token that is no text."""
CUTS_DIGITS = ("smollm",)
"""Pre-tokenizers that are GPT-2's, with every digit alone."""


def check_gguf_package(path: Path) -> None:
    """Refuse a GGUF file without the package that reads it.

    Raises:
        InputError: `gguf` is not installed.
    """
    if find_spec("gguf") is None:
        hint = "pip install 'tumorchain-jax[chat]'"
        raise InputError(path, "GGUF", "no `gguf` package here", "one, to read it", hint)


def unpack_gguf(path: Path, folder: Path) -> None:
    """Write configuration, tokenizer and weights of a GGUF file as Hugging Face has them.

    Args:
        folder: an empty one.

    Raises:
        InputError: the `gguf` package is not here; the file is damaged, of another architecture, or
            has a tokenizer that is not known here.
    """
    check_gguf_package(path)
    from gguf import GGUFReader, dequantize

    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, IndexError, KeyError) as error:
        hint = "download it again"
        raise InputError(path, "GGUF", repr(str(error)), "a whole file", hint) from error
    tied = not any(tensor.name == "output.weight" for tensor in reader.tensors)
    config = _read_config(path, fields, tied)
    specs = {
        _key(path, tensor.name): (np.dtype(np.float32), tuple(map(int, tensor.shape[::-1])))
        for tensor in reader.tensors
    }
    with (folder / "model.safetensors").open("w+b") as stream:
        writer = TensorWriter(stream, specs)
        for tensor in reader.tensors:
            key = _key(path, tensor.name)
            values = dequantize(tensor.data, tensor.tensor_type).reshape(specs[key][1])
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            if count := heads.get(key.split(".")[-2]):
                values = _half_split(values, count)
            writer.write(key, 0, np.ascontiguousarray(values, np.float32))
    (folder / "config.json").write_text(json.dumps(transformers_config(config), indent=2) + "\n")
    _tokenizer(path, fields).save_pretrained(folder)


def _read_config(path: Path, fields: Mapping[str, Any], tied: bool) -> Qwen2Config:
    def need(name: str) -> Any:
        if name not in fields:
            raise InputError(path, name, "no such field", "one", "download it again")
        return fields[name]

    kind = need("general.architecture")
    if kind != "llama":
        raise InputError(path, "general.architecture", repr(kind), "'llama'", "take another model")
    if "llama.rope.scaling.type" in fields:
        found = repr(fields["llama.rope.scaling.type"])
        raise InputError(
            path, "rope.scaling", found, "plain rotary embedding", "take another model"
        )
    sizes: dict[str, Any] = {ours: int(need(f"llama.{name}")) for name, ours in SIZES.items()}
    return Qwen2Config(
        vocab_size=len(need("tokenizer.ggml.tokens")),
        head_dim=int(need("llama.rope.dimension_count")),
        tie_word_embeddings=tied,
        rope_theta=float(need("llama.rope.freq_base")),
        rms_norm_eps=float(need("llama.attention.layer_norm_rms_epsilon")),
        attention_bias=False,
        **sizes,
    )


def _key(path: Path, name: str) -> str:
    """Name a tensor as Hugging Face does."""
    if name in TENSORS:
        return TENSORS[name]
    block, number, part, *rest = [*name.split("."), "", "", ""]
    if block != "blk" or part not in LAYER_TENSORS or rest[0] != "weight":
        raise InputError(path, name, "this tensor", "those of Llama", "take another model")
    return f"model.layers.{number}.{LAYER_TENSORS[part]}.weight"


def _half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder interleaved rows (e0 e1 e0 e1) of each head: first halves, then second ones."""
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _tokenizer(path: Path, fields: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Build the byte-level tokenizer that is in the file."""
    kind, cut = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in CUTS_DIGITS:
        found, expected = f"{kind!r}, {cut!r}", f"'gpt2', one of {CUTS_DIGITS}"
        raise InputError(path, "tokenizer.ggml", found, expected, "take another model")
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    controls = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in controls])
    named = {
        f"{name}_token": tokens[fields[f"tokenizer.ggml.{long}_token_id"]]
        for name, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
        if f"tokenizer.ggml.{long}_token_id" in fields
    }
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    fast.chat_template = fields.get("tokenizer.chat_template")
    return fast
