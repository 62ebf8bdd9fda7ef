"""A trained translation of looks as a folder, and CycleGAN's published files as one.

config.json        sizes of the networks, method, looks and view
model.safetensors  float32 parameters by path, `a_to_b/...` and what else was trained
"""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.translation.convert import generator_table
from tumorchain_jax.models.translation.model import Generator, TranslationConfig
from tumorchain_jax.models.weight_map import sources
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.pickles import unpickle
from tumorchain_jax.weights.tensor_files import check_finite, write_arrays

FORTH, BACK = "a_to_b", "b_to_a"
HINT = "use a folder that training of a translation wrote"


@dataclass(frozen=True)
class TranslationFolder:
    """A translation, read.

    Attributes:
        facts: method, looks, view and side.
        ways: parameters by path of the generators there are, `a_to_b` and perhaps `b_to_a`.
    """

    model: TranslationConfig
    facts: Mapping[str, Any]
    ways: Mapping[str, Mapping[str, np.ndarray]]


def save_translation(
    folder: Path,
    model: TranslationConfig,
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write a folder; it appears whole, in place of an older one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder, overwrite=True) as part:
        content = {"translation": asdict(model), **facts}
        (part / "config.json").write_text(json.dumps(content, indent=1) + "\n")
        write_arrays(part / "model.safetensors", arrays)


def load_translation(folder: Path) -> TranslationFolder:
    """Read a folder.

    Raises:
        InputError: it is none, or is damaged.
    """
    path, weights = folder / "config.json", folder / "model.safetensors"
    if not path.is_file():
        raise InputError(folder, "config.json", "none", "a translation's folder", HINT)
    values = read_json(path)
    try:
        model = TranslationConfig(**values.pop("translation"))
        shapes = generator_shapes(model)
        arrays = load_file(weights)
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "translation", found, "what training exported", HINT) from error
    ways = {}
    for way in (FORTH, BACK):
        own = {p.removeprefix(f"{way}/"): x for p, x in arrays.items() if p.startswith(f"{way}/")}
        if own or way == FORTH:
            check_shapes(weights, {p: x.shape for p, x in own.items()}, shapes, HINT)
            for name, leaf in own.items():
                check_finite(weights, name, leaf)
            ways[way] = own
    return TranslationFolder(model, values, ways)


def generator_shapes(model: TranslationConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of a generator's parameters by path."""
    images = jax.ShapeDtypeStruct((1, 64, 64, model.channels), jnp.float32)
    tree = jax.eval_shape(partial(Generator(model).init, jax.random.key(0)), images)["params"]
    return {path: leaf.shape for path, leaf in flatten(tree).items()}


def read_cyclegan(path: Path) -> tuple[TranslationConfig, dict[str, np.ndarray]]:
    """Read a generator of pytorch-CycleGAN-and-pix2pix, `N_net_G_A.pth`.

    The pickle is opened in a process of its own that builds tensors alone.

    Raises:
        InputError: it cannot be read, or is another network.
    """
    with tempfile.TemporaryDirectory() as scratch:
        unpickle([path], Path(scratch))
        found = load_file(Path(scratch) / f"{path.stem}.safetensors")
    hint = "give a generator of ResNet blocks with instance normalization"
    blocks = {int(m[1]) for key in found if (m := re.match(r"model\.(\d+)\.conv_block\.", key))}
    first = found.get("model.1.weight")
    if not blocks or first is None or first.ndim != 4:
        shown = f"{sorted(found)[0] if found else 'nothing'}"
        raise InputError(path, "generator", shown, "model.10.conv_block.1.weight", hint)
    model = TranslationConfig(width=first.shape[0], blocks=len(blocks), channels=first.shape[1])
    dropout = any(".conv_block.6." in key for key in found)
    shapes = {
        name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in generator_shapes(model).items()
    }
    wanted = sources(generator_table(model.blocks, dropout), shapes)
    theirs = {
        source.keys[0]: source.their_shape(shapes[name].shape) for name, source in wanted.items()
    }
    check_shapes(path, {key: leaf.shape for key, leaf in found.items()}, theirs, hint)
    ours = {}
    for name, source in wanted.items():
        check_finite(path, source.keys[0], found[source.keys[0]])
        ours[name] = np.ascontiguousarray(
            source.transform.to_ours(found[source.keys[0]]), np.float32
        )
    return model, ours
