"""Match the tensors of a checkpoint family to our arrays, by a table of keys."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.families import ImageConfig, image_classifier
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.models.qwen_vl.tower import Tower, TowerConfig
from tumorchain_jax.models.weight_map import Renames, Table, canonical, sources
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.orbax_folder import ArraySpec
from tumorchain_jax.weights.tensor_files import Tensor, as_bytes, check_finite

Shapes = dict[str, tuple[int, ...]]
FLOATS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Family:
    """Description of how checkpoints of one kind are read.

    Attributes:
        name: of the kind.
        config: of the parts that it fills, as in `TumorChainConfig.to_dict`.
        table: of its (canonical) keys, for the paths in `shapes`.
        renames: other spellings of keys.
        passthrough: regexes over keys that are stored unchanged, for export.
        ignored: regexes over keys that nothing uses.
        absent: keys of the table that are not there: an adapter's of layers it leaves alone.
        copies: (regex over keys, template of another key): the first must equal the second.
        padded: {key: (axis, size)}: tensors that are shorter than our layer, which is filled up
            with zeros.
        hint: what helps when the tensors are not those that the configuration asks for.
        copies_hint: what helps when a copy differs.
    """

    name: str
    config: dict[str, Any]
    table: Table
    shapes: Shapes
    renames: Renames = ()
    passthrough: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    copies: Renames = ()
    padded: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    hint: str = "complete the folder, or put the configuration of these weights beside it"
    copies_hint: str = "set tie_word_embeddings to false"


def decoder_shapes(config: Qwen2Config, lora: LoRA | None = None) -> Shapes:
    """Shapes of a decoder's parameters by path."""

    def whole(decoder: Decoder, tokens: jax.Array) -> jax.Array:
        return decoder.logits(decoder(decoder.embed(tokens))[0])

    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    return module_shapes(Decoder(config, lora), tokens, method=whole)


def tower_shapes(config: TowerConfig, lora: LoRA | None = None) -> Shapes:
    """Shapes of the parameters of Qwen2.5-VL's vision tower and merger by path."""
    patches = jax.ShapeDtypeStruct((1, MERGE**2, config.patch_values), jnp.float32)
    row, hw = (jax.ShapeDtypeStruct((1, MERGE**2, *rest), jnp.int32) for rest in ((), (2,)))
    return module_shapes(Tower(config, lora), patches, row, hw, row)


def classifier_shapes(config: ImageConfig) -> Shapes:
    """Shapes of an image classifier's parameters and running statistics by path."""
    module = image_classifier(config).build(config)
    size = getattr(config, "image", (224, 224))  # the parameters of a ResNet do not depend on it
    images = jax.ShapeDtypeStruct((1, *size, config.channels), jnp.float32)
    found = nn.meta.unbox(jax.eval_shape(module.init, jax.random.key(0), images))
    flat = flatten(found["params"]) | flatten(found.get(STATISTICS, {}))
    return {path: leaf.shape for path, leaf in flat.items()}


def module_shapes(module: nn.Module, *args: Any, **options: Any) -> Shapes:
    """Shapes of a module's parameters by path; the arguments are those of `init`."""

    def init(key: jax.Array, *args: Any) -> Any:
        # Unboxed in here: on a mesh that constrains the arrays, which bare shapes do not take.
        return nn.meta.unbox(module.init(key, *args, **options))["params"]

    params = jax.eval_shape(init, jax.random.key(0), *args)
    return {path: leaf.shape for path, leaf in flatten(params).items()}


def under(part: str, table: Table) -> Table:
    """A table for paths that begin with the name of a part."""
    return [(f"{part}/{pattern}", key, transform) for pattern, key, transform in table]


class Place(NamedTuple):
    """Place of a tensor: a layer of one of our arrays (None: it has no layers)."""

    path: str
    layer: int | None


@dataclass(frozen=True)
class Match:
    """Places of all tensors of a folder.

    Attributes:
        specs: our arrays by path.
        places: of the tensors that fill them, by key.
        passthrough: keys of tensors that are stored unchanged.
    """

    specs: dict[str, ArraySpec]
    places: dict[str, Place]
    passthrough: list[str]


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
    passthrough = [
        key for key, name in names.items() if name not in keys and named(family.passthrough, name)
    ]
    unexpected = [
        key
        for key, name in names.items()
        if name not in keys
        and not named((*family.passthrough, *family.ignored), name)
        and canonical(family.copies, name) not in keys
    ]
    for key in names:
        if names[key] in twice:
            twin = f"it under two spellings of {names[key]}"
            raise InputError(folder, key[:100], twin, "each tensor once", "remove one")
    spelled = {name: key for key, name in names.items()}
    wanted = {}
    for name, (path, _) in keys.items():
        shape = made_of[path].their_shape(family.shapes[path])
        if name in family.padded:
            axis, size = family.padded[name]
            shape = (*shape[:axis], size, *shape[axis + 1 :])
        wanted[spelled.get(name, name)] = shape
    found = {key: tensors[key].shape for key in (*places, *unexpected)}
    check_shapes(folder, found, wanted, family.hint)
    dtypes: dict[str, np.dtype] = {}
    for key, (path, _) in places.items():
        own = tensors[key].dtype
        if own.name not in FLOATS:
            raise InputError(folder, key[:100], str(own), " or ".join(FLOATS), family.hint)
        if dtype is None and dtypes.setdefault(path, own) != own:
            expected = f"{dtypes[path]}, as other layers have"
            raise InputError(folder, key[:100], str(own), expected, "choose a --dtype")
    specs = {
        path: ArraySpec(
            family.shapes[path], np.dtype(dtype) if dtype else dtypes[path], made_of[path]
        )
        for path in family.shapes
    }
    return Match(specs, places, passthrough)


def load_arrays(
    source: Path, family: Family, tensors: Mapping[str, Tensor]
) -> dict[str, np.ndarray]:
    """Read all arrays of a family into memory, by path, layers stacked.

    Raises:
        InputError: as `match` and `check_copies`; or a number is not finite.
    """
    matched = match(source, family, tensors, None)
    check_copies(source, family, tensors)
    # Zeros for the layers that no tensor is for, or that are larger than theirs.
    arrays = {path: np.zeros(spec.shape, spec.dtype) for path, spec in matched.specs.items()}
    for key, (path, layer) in matched.places.items():
        tensor = tensors[key]
        values = np.fromfile(tensor.file, tensor.dtype, prod(tensor.shape), offset=tensor.start)
        check_finite(source, key, values)
        ours = matched.specs[path].source.transform.to_ours(values.reshape(tensor.shape))
        window = arrays[path] if layer is None else arrays[path][layer]
        window[tuple(slice(0, size) for size in ours.shape)] = ours
    return arrays


def check_copies(folder: Path, family: Family, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a second tensor of one parameter that differs from the first.

    Raises:
        InputError: PyTorch would take the other.
    """
    names = {canonical(family.renames, key): tensor for key, tensor in tensors.items()}
    for key, tensor in names.items():
        original = canonical(family.copies, key)
        if original != key and original in names and not _same(tensor, names[original]):
            found, expected = f"other numbers than {original}", "the same, as a copy of it"
            raise InputError(folder, key, found, expected, family.copies_hint)


def _same(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    pairs = zip(one.pieces(), other.pieces(), strict=True)
    return all(np.array_equal(as_bytes(a), as_bytes(b)) for (_, a), (_, b) in pairs)
