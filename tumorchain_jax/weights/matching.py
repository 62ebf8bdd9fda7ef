"""How a kind of checkpoint is read, and where each tensor of one goes."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import Renames, Table, canonical, sources
from tumorchain_jax.weights.orbax_folder import ArraySpec
from tumorchain_jax.weights.tensor_files import Tensor

Shapes = dict[str, tuple[int, ...]]
FLOATS = ("float32", "bfloat16", "float16")
SHOWN = 5
"""Keys that an error names, of each kind."""


@dataclass(frozen=True)
class Family:
    """How a checkpoint of one kind is read.

    Attributes:
        name: of the kind.
        config: of the parts that it fills, as in `TumorChainConfig.to_dict`.
        table: of its (canonical) keys, for the paths in `shapes`.
        renames: other spellings of keys.
        carried: regexes over keys that are kept as they are, for the way back.
        ignored: regexes over keys that nothing uses.
        absent: keys of the table that are not there: an adapter's of layers it leaves alone.
        copies: (key, key): where the first is there, it must equal the second.
    """

    name: str
    config: dict[str, Any]
    table: Table
    shapes: Shapes
    renames: Renames = ()
    carried: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()


def decoder_shapes(config: Qwen2Config, lora: LoRA | None = None) -> Shapes:
    """Shapes of a decoder's parameters by path."""

    def whole(decoder: Decoder, tokens: jax.Array) -> jax.Array:
        return decoder.logits(decoder(decoder.embed(tokens))[0])

    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    return module_shapes(Decoder(config, lora), tokens, method=whole)


def module_shapes(module: nn.Module, *args: Any, **options: Any) -> Shapes:
    """Shapes of a module's parameters by path; the arguments are those of `init`."""
    init = partial(module.init, **options)
    params = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0), *args))["params"]
    return {path: leaf.shape for path, leaf in flatten(params).items()}


def under(part: str, table: Table) -> Table:
    """A table for paths that begin with the name of a part."""
    return [(f"{part}/{pattern}", key, transform) for pattern, key, transform in table]


class Place(NamedTuple):
    """Where a tensor goes: to a layer of one of our arrays (None: it has no layers)."""

    path: str
    layer: int | None


@dataclass(frozen=True)
class Match:
    """Every tensor of a folder, in its place.

    Attributes:
        specs: our arrays by path.
        places: of the tensors that fill them, by key.
        carried: keys of tensors that are kept as they are.
    """

    specs: dict[str, ArraySpec]
    places: dict[str, Place]
    carried: list[str]


def match(folder: Path, family: Family, tensors: Mapping[str, Tensor], dtype: str | None) -> Match:
    """Find the place of every tensor.

    Args:
        dtype: of our arrays; None keeps what each tensor has.

    Raises:
        InputError: a key is missing, unexpected or there twice; a shape or dtype is another.
    """
    like = {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in family.shapes.items()}
    made_of = sources(family.table, like)
    keys = {
        key: Place(path, layer if source.stacked else None)
        for path, source in made_of.items()
        for layer, key in enumerate(source.keys)
        if key not in family.absent
    }
    names = {key: canonical(family.renames, key) for key in tensors}
    twice = {name for name, count in Counter(names.values()).items() if count > 1}

    def named(patterns: Sequence[str], name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in patterns)

    places = {key: keys[name] for key, name in names.items() if name in keys}
    carried = [
        key for key, name in names.items() if name not in keys and named(family.carried, name)
    ]
    unexpected = [
        key
        for key, name in names.items()
        if name not in keys and not named((*family.carried, *family.ignored), name)
    ]
    refuse = partial(_refuse, folder, family)
    refuse("missing", sorted(keys.keys() - set(names.values())))
    refuse("unexpected", unexpected)
    refuse("there twice, under two spellings:", [key for key in names if names[key] in twice])

    dtypes: dict[str, np.dtype] = {}
    wrong = []
    for key, (path, layer) in places.items():
        tensor, shape = tensors[key], family.shapes[path]
        shape = shape if layer is None else shape[1:]
        expected = made_of[path].transform.from_ours(np.broadcast_to(np.int8(0), shape)).shape
        if tensor.shape != expected:
            wrong.append(f"{key} (shape {tensor.shape}, expected {expected})")
        if tensor.dtype.name not in FLOATS:
            wrong.append(f"{key} (dtype {tensor.dtype}, expected one of {' '.join(FLOATS)})")
        elif dtype is None and dtypes.setdefault(path, tensor.dtype) != tensor.dtype:
            wrong.append(f"{key} (dtype {tensor.dtype}, other layers {dtypes[path]}: choose one)")
    refuse("wrong", wrong)
    specs = {
        path: ArraySpec(
            family.shapes[path], np.dtype(dtype) if dtype else dtypes[path], made_of[path]
        )
        for path in family.shapes
    }
    return Match(specs, places, carried)


def _refuse(folder: Path, family: Family, kind: str, keys: Sequence[str]) -> None:
    if not keys:
        return
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    raise InputError(
        folder,
        "tensors",
        f"{kind} {', '.join(keys[:SHOWN])}{more}",
        f"each tensor of {family.name} once, in its own shape",
        "complete the folder, or put the configuration beside it that is of these weights",
    )
