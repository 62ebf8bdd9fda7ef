"""Qwen3 <-> `Decoder`: weights, configuration, chat template. See `models/families.py`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.chat_template import CHATML
from tumorchain_jax.models.language.qwen2 import convert as qwen2
from tumorchain_jax.models.language.qwen3.model import Qwen3Config
from tumorchain_jax.models.weight_map import KEEP, Renames, Table

CONFIG: type[Qwen3Config] = Qwen3Config
MODEL_TYPES: tuple[str, ...] = ("qwen3",)
TABLE: Table = (
    *qwen2.TABLE,
    (r"layers/self_attn/([qk]_norm)/weight", r"model.layers.{layer}.self_attn.\1.weight", KEEP),
)
RENAMES: Renames = ()
IGNORE: tuple[str, ...] = ()
LORA_TABLE: Table = qwen2.LORA_TABLE
LORA_RENAMES: Renames = ()

# No system turn by default. An answer without thinking opens with empty thoughts (in the released
# template: `enable_thinking=False`); our chain of thought is the answer itself, round by round.
CHAT = replace(CHATML, system="", open_assistant=CHATML.open_assistant + "<think>\n\n</think>\n\n")


def read_config(path: Path, fields: Mapping[str, Any]) -> Qwen3Config:
    """Our configuration from a `config.json` of transformers.

    Args:
        path: named in errors.
        fields: what it holds.

    Raises:
        InputError: a field is missing (none has a default here) or asks for what ours cannot do.
    """
    if fields.get("head_dim") is None:  # hidden size / heads, as for Qwen2, would be wrong
        hint = "complete it from the model's own page"
        raise InputError(path, "head_dim", "no such field", "a number", hint)
    return Qwen3Config(**qwen2.decoder_fields(path, fields, absent=("attention_bias",)))


def transformers_config(config: Qwen3Config) -> dict[str, Any]:
    """A `config.json` that transformers opens as Qwen3."""
    window = {"use_sliding_window": False, "attention_bias": False}
    return qwen2.named_fields(config, "qwen3", "Qwen3", window)
