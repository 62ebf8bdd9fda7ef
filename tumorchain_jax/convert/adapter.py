"""LoRA adapters as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`.

Which tensors there must be follows from the configuration and the base model, so an adapter that
is cut short is refused. Ours are stacked: layers without an adapter hold zeros, and layers of a
lower rank than others of their projection are padded with zeros, which add nothing. One factor
scales a whole stack, so all layers of a projection must have the same alpha / rank.
"""

import re
from collections.abc import Collection, Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tumorchain_jax.convert.adapter_config import (
    MERGE,
    check_fields,
    is_saved,
    is_target,
    rank_and_alpha,
    scale,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.families import decoder_to_dict, language_model
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import Table, canonical, sources
from tumorchain_jax.weights.matching import Family, Shapes, decoder_shapes, under

STEM = "adapter_model"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"
BASE_HEAD = f"{PREFIX}{HEAD}.base_layer.weight"
"""The base's own weight, which PEFT keeps beside the adapter of a head."""
UNTIE = f"{MERGE}, and set tie_word_embeddings to false"


class _Adapted(NamedTuple):
    """One projection that has adapters.

    Attributes:
        ranks: by layer.
        alpha: of the layer with the highest rank, to which the others are padded.
    """

    ranks: dict[int, int]
    alpha: float

    @property
    def rank(self) -> int:
        """The highest rank."""
        return max(self.ranks.values())


def read_adapter(
    path: Path, fields: Mapping[str, Any], base: Qwen2Config, keys: Collection[str]
) -> Family:
    """Build the family of an adapter.

    Args:
        path: of its configuration, named in errors.
        fields: what that holds.
        base: what it adapts.
        keys: of its tensors, for how they spell a module's name.

    Raises:
        InputError: it is no plain LoRA over an unchanged base; it adapts an embedding, or one side
            of a tied one; or layers of one projection differ in scale.
    """
    check_fields(path, fields)
    model = language_model(base)
    names = {canonical(model.LORA_RENAMES, key) for key in keys}
    _check_embedding(path, fields, base, names)
    spelling = "model.language_model." if any(".language_model." in key for key in keys) else ""
    adapted = _adapted(path, fields, _module_names(base, spelling))
    if not adapted:
        found, expected = repr(fields.get("target_modules"))[:80], "linear layers of the base"
        raise InputError(path, "target_modules", found, expected, "name the base it was made for")
    lora = LoRA(
        tuple(_anywhere(module) for module in adapted),
        fields["r"],
        float(fields["lora_alpha"]),
        bool(fields.get("use_rslora")),
        tuple((_anywhere(m), a.rank) for m, a in adapted.items() if a.rank != fields["r"]),
        tuple(
            (_anywhere(m), a.alpha) for m, a in adapted.items() if a.alpha != fields["lora_alpha"]
        ),
    )
    shapes = decoder_shapes(base, lora)
    saved = _saved(fields, model.TABLE, shapes, names)
    adapted_shapes = {
        path: shape
        for path, shape in shapes.items()
        if path.endswith(("/lora_a", "/lora_b")) or path in saved
    }
    saved_table = [(pattern, PREFIX + key, change) for pattern, key, change in model.TABLE]
    config = {"decoder": decoder_to_dict(base), "lora": asdict(lora)}
    embedding, head = f"{PREFIX}{EMBEDDING}.weight", f"{PREFIX}{HEAD}.weight"
    tied = base.tie_word_embeddings
    return Family(
        "peft",
        config,
        under("decoder", (*model.LORA_TABLE, *saved_table)),
        {f"decoder/{path}": shape for path, shape in adapted_shapes.items()},
        model.LORA_RENAMES,
        passthrough=(
            re.escape(PREFIX) + r"visual\..*",
            re.escape(head if tied else BASE_HEAD),
        ),
        absent=_absent(adapted, base),
        copies=((re.escape(head), embedding),) if tied else (),
        padded=_padded(adapted),
        hint=MERGE,
        copies_hint=UNTIE,
    )


def _check_embedding(
    path: Path, fields: Mapping[str, Any], base: Qwen2Config, names: Set[str]
) -> None:
    """Refuse what PEFT would change at one end of a tied embedding alone, and its own adapters."""
    head = {name for name in names if name.startswith(f"{PREFIX}{HEAD}.")}
    if any(".lora_embedding_" in name for name in names):
        found, expected = "an adapter of the embedding", "adapters of linear layers"
    elif not base.tie_word_embeddings:
        return
    elif any(".lora_" in name for name in head) or is_target(fields, HEAD, is_head=True):
        found, expected = "an adapter of the tied head alone", "one of an untied head"
    elif head and f"{PREFIX}{EMBEDDING}.weight" not in names:
        found, expected = "a new tied head alone", "the embedding too"
    elif is_saved(fields, EMBEDDING) and not head:
        found, expected = "a new tied embedding alone", "the head too"
    else:
        return
    field = "modules_to_save" if "new" in found else "target_modules"
    raise InputError(path, field, found, expected, UNTIE if base.tie_word_embeddings else MERGE)


def _adapted(
    path: Path, fields: Mapping[str, Any], names: Mapping[tuple[str, int], str]
) -> dict[str, _Adapted]:
    """Collect the projections that have adapters.

    Raises:
        InputError: layers of one differ in scale.
    """
    adapted: dict[str, _Adapted] = {}
    scales: dict[str, float] = {}
    for (module, layer), name in names.items():
        if not is_target(fields, name, is_head=module == HEAD):
            continue
        rank, alpha = rank_and_alpha(fields, name)
        if abs(scales.setdefault(module, scale(fields, name)) / scale(fields, name) - 1) > 1e-9:
            found = f"rank {rank} and alpha {alpha} for {name}, others of {module} differ"
            expected = "one alpha / rank for all layers of a projection"
            raise InputError(path, "rank_pattern", found, expected, MERGE)
        ranks = adapted[module].ranks if module in adapted else {}
        highest = rank > max(ranks.values(), default=0)
        chosen = alpha if highest else adapted[module].alpha
        adapted[module] = _Adapted({**ranks, layer: rank}, chosen)
    return adapted


def _module_names(base: Qwen2Config, spelling: str) -> dict[tuple[str, int], str]:
    """Map (our module, layer) of all linear layers to their names in PyTorch."""
    linear = [path.rpartition("/")[0] for path in decoder_shapes(base) if path.endswith("/kernel")]
    names = {}
    for module in linear:
        stack, _, inner = module.partition("/")
        if stack == "layers":
            dotted = inner.replace("/", ".")
            for layer in range(base.num_hidden_layers):
                names[module, layer] = f"{spelling or 'model.'}layers.{layer}.{dotted}"
        else:
            names[module, 0] = module
    return names


def _anywhere(module: str) -> str:
    """Build a regex over our paths: of the decoder alone or in the whole, stacked or unrolled."""
    return f"(.*/)?{module.replace('layers/', r'layers(_[0-9]+)?/', 1)}"


def _saved(fields: Mapping[str, Any], table: Table, shapes: Shapes, keys: Set[str]) -> set[str]:
    """Select parameters that the adapter replaces whole: of modules whose name, or that of one
    they are in, ends like one of `modules_to_save`; and embeddings, which PEFT may add on its own.
    """
    like = {
        path: jax.ShapeDtypeStruct(shape, jnp.float32)
        for path, shape in shapes.items()
        if not path.endswith(("/lora_a", "/lora_b"))
    }
    return {
        path
        for path, source in sources(table, like).items()
        for name in [source.keys[0].rpartition(".")[0]]
        if (name in (EMBEDDING, HEAD) and PREFIX + source.keys[0] in keys)
        or any(is_saved(fields, key.rpartition(".")[0]) for key in source.keys)
    }


def _keys(module: str, layer: int) -> list[str]:
    """Name the canonical keys of the adapter of one layer: A and B."""
    stack, _, inner = module.partition("/")
    name = f"model.layers.{layer}.{inner.replace('/', '.')}" if stack == "layers" else module
    return [f"{PREFIX}{name}.lora_{part}.weight" for part in "AB"]


def _absent(adapted: Mapping[str, _Adapted], base: Qwen2Config) -> tuple[str, ...]:
    """List canonical keys that are not there: those of layers without an adapter."""
    return tuple(
        key
        for module, each in adapted.items()
        if module.startswith("layers/")
        for layer in set(range(base.num_hidden_layers)) - each.ranks.keys()
        for key in _keys(module, layer)
    )


def _padded(adapted: Mapping[str, _Adapted]) -> dict[str, tuple[int, int]]:
    """Map canonical keys to (the axis of the tensor that is shorter than ours, its size)."""
    return {
        key: (axis, rank)
        for module, each in adapted.items()
        for layer, rank in each.ranks.items()
        if rank < each.rank
        for axis, key in enumerate(_keys(module, layer))
    }
