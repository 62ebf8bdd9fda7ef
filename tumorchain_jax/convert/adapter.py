"""LoRA adapters as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`.

Of a Qwen2.5-VL they may be of all its parts: decoder, vision tower, merger and patch embedding.

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
from tumorchain_jax.models.language.qwen2.convert import TOWER
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl import convert as qwen_vl
from tumorchain_jax.models.qwen_vl.tower import TowerConfig
from tumorchain_jax.models.weight_map import Table, canonical, sources
from tumorchain_jax.weights.matching import Family, Shapes, decoder_shapes, tower_shapes, under

STEM = "adapter_model"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."
NEWER = (f"{PREFIX}model.language_model.", f"{PREFIX}model.visual.")
"""How keys of newer transformers begin, of Qwen2.5-VL alone."""
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


class Base(NamedTuple):
    """What an adapter adapts; without a tower, the adapter must not adapt one."""

    decoder: Qwen2Config
    tower: TowerConfig | None = None

    @property
    def table(self) -> Table:
        """Of all of its parameters."""
        rows = under("decoder", language_model(self.decoder).TABLE)
        return [*rows, *under("tower", qwen_vl.TABLE)] if self.tower else rows

    @property
    def lora_table(self) -> Table:
        """Of the parameters of adapters."""
        rows = under("decoder", language_model(self.decoder).LORA_TABLE)
        return [*rows, *under("tower", qwen_vl.LORA_TABLE)] if self.tower else rows

    def shapes(self, lora: LoRA | None = None) -> Shapes:
        """Of its parameters by path, with adapters if there are any."""
        parts = {"decoder": decoder_shapes(self.decoder, lora)}
        if self.tower:
            parts["tower"] = tower_shapes(self.tower, lora)
        return {
            f"{part}/{path}": shape for part, each in parts.items() for path, shape in each.items()
        }

    def modules(self) -> dict[str, list[str]]:
        """Our layers that can have an adapter, and the released names of each: one for each layer
        of a stack.
        """
        like = {
            path: jax.ShapeDtypeStruct(shape, jnp.float32)
            for path, shape in self.shapes().items()
            if path.endswith("/kernel")
        }
        return {
            path.removesuffix("/kernel"): [key.removesuffix(".weight") for key in source.keys]
            for path, source in sources(self.table, like).items()
        }


def read_adapter(
    path: Path, fields: Mapping[str, Any], base: Base, keys: Collection[str]
) -> Family:
    """Build the family of an adapter.

    Args:
        path: of its configuration, named in errors.
        fields: what that holds.
        base: what it adapts.
        keys: of its tensors, for how they spell a module's name.

    Raises:
        InputError: it is no plain LoRA over an unchanged base; it adapts an embedding, one side of
            a tied one, or a vision tower that the base is without; or layers of one projection
            differ in scale.
    """
    check_fields(path, fields)
    model, decoder = language_model(base.decoder), base.decoder
    names = {canonical(model.LORA_RENAMES, key) for key in keys}
    _check_embedding(path, fields, decoder, names)
    _check_tower(path, base, names)
    is_newer = any(key.startswith(NEWER) for key in keys)
    modules = base.modules()
    adapted = _adapted(path, fields, modules, is_newer)
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
    shapes = base.shapes(lora)
    saved = _saved(fields, base.table, shapes, names)
    saved_table = [(pattern, PREFIX + key, change) for pattern, key, change in base.table]
    config = {"decoder": decoder_to_dict(decoder), "lora": asdict(lora)}
    if base.tower:
        config["tower"] = asdict(base.tower)
    embedding, head = f"{PREFIX}{EMBEDDING}.weight", f"{PREFIX}{HEAD}.weight"
    tied = decoder.tie_word_embeddings
    return Family(
        "peft",
        config,
        (*base.lora_table, *saved_table),
        {
            path: shape
            for path, shape in shapes.items()
            if path.endswith(("/lora_a", "/lora_b")) or path in saved
        },
        model.LORA_RENAMES,
        passthrough=(re.escape(head if tied else BASE_HEAD),),
        absent=_absent(adapted, modules),
        copies=((re.escape(head), embedding),) if tied else (),
        padded=_padded(adapted, modules),
        hint=MERGE,
        copies_hint=UNTIE,
    )


def _check_tower(path: Path, base: Base, names: Set[str]) -> None:
    """Refuse parts for a vision tower that nothing would use."""
    visual = sorted(name for name in names if name.startswith(PREFIX + TOWER))
    if visual and base.tower is None:
        found = f"{len(visual)} of a vision tower, such as {visual[0]}"[:120]
        hint = "import the base with --tower, and name that as --base"
        raise InputError(path, "tensors", found, "those of a language model alone", hint)


def _check_embedding(
    path: Path, fields: Mapping[str, Any], base: Qwen2Config, names: Set[str]
) -> None:
    """Refuse what PEFT would change at one end of a tied embedding alone, and its own adapters."""
    head = {name for name in names if name.startswith(f"{PREFIX}{HEAD}.")}
    if any(".lora_embedding_" in name for name in names):
        found, expected = "an adapter of the embedding", "adapters of linear layers"
    elif not base.tie_word_embeddings:
        return
    elif any(".lora_" in name for name in head) or is_target(fields, HEAD, False):
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
    path: Path, fields: Mapping[str, Any], modules: Mapping[str, list[str]], is_newer: bool
) -> dict[str, _Adapted]:
    """Collect the projections that have adapters.

    Args:
        modules: of `Base.modules`.
        is_newer: of newer transformers, which gives the two parts of a Qwen2.5-VL longer names.

    Raises:
        InputError: layers of one differ in scale.
    """
    adapted: dict[str, _Adapted] = {}
    for module, names in modules.items():
        ranks: dict[int, int] = {}
        scales: list[float] = []
        highest = alpha = 0.0
        for layer, released in enumerate(names):
            name = in_memory(released) if is_newer else released
            if not is_target(fields, name, released not in (HEAD, qwen_vl.CONVOLUTION)):
                continue
            rank, own = rank_and_alpha(fields, name)
            scales.append(scale(fields, name))
            if abs(scales[0] / scales[-1] - 1) > 1e-9:
                found = f"rank {rank} and alpha {own} for {name}, others of {module} differ"
                expected = "one alpha / rank for all layers of a projection"
                raise InputError(path, "rank_pattern", found, expected, MERGE)
            ranks[layer] = rank
            if rank > highest:
                highest, alpha = rank, own
        if ranks:
            adapted[module] = _Adapted(ranks, alpha)
    return adapted


def in_memory(name: str) -> str:
    """The name that newer transformers has for a module of the released files."""
    if name.startswith(TOWER):
        return f"model.{name}"
    return re.sub(r"^model\.", "model.language_model.", name)


def _anywhere(module: str) -> str:
    """Build a regex over our paths: of a part alone or in the whole, stacked or unrolled."""
    inner = module.partition("/")[2]
    return f"(.*/)?{inner.replace('layers/', r'layers(_[0-9]+)?/', 1)}"


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


def _keys(name: str) -> list[str]:
    """Name the canonical keys of the adapter of one layer: A and B."""
    return [f"{PREFIX}{name}.lora_{part}.weight" for part in "AB"]


def _absent(adapted: Mapping[str, _Adapted], modules: Mapping[str, list[str]]) -> tuple[str, ...]:
    """List canonical keys that are not there: those of layers without an adapter."""
    return tuple(
        key
        for module, each in adapted.items()
        for layer, name in enumerate(modules[module])
        if layer not in each.ranks
        for key in _keys(name)
    )


def _padded(
    adapted: Mapping[str, _Adapted], modules: Mapping[str, list[str]]
) -> dict[str, tuple[int, int]]:
    """Map canonical keys to (the axis of the tensor that is shorter than ours, its size)."""
    return {
        key: (axis, rank)
        for module, each in adapted.items()
        for layer, rank in each.ranks.items()
        if rank < each.rank
        for axis, key in enumerate(_keys(modules[module][layer]))
    }


def adapter_config(
    lora: LoRA, ranks: Mapping[str, int], alphas: Mapping[str, float]
) -> dict[str, Any]:
    """PEFT's configuration of adapters of ours.

    Args:
        ranks, alphas: of each target module, by its name or the end of that.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.rslora,
        "rank_pattern": {name: rank for name, rank in ranks.items() if rank != lora.rank},
        "alpha_pattern": {name: alpha for name, alpha in alphas.items() if alpha != lora.alpha},
        "target_modules": sorted(ranks),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
