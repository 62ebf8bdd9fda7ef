"""The files for PyTorch of a checkpoint of ours: which array is in which, under which names.

Ours has all arrays in one file, layers stacked. Both ways go tensor by tensor.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.weight_map import Source, Table, sources
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.tensor_files import Tensor, TensorWriter, read_file

FLOAT32 = np.dtype(np.float32)
ADAPTERS = ("/lora_a", "/lora_b")


def _as_it_is(key: str) -> str:
    return key


class Part(NamedTuple):
    """Rule for one file of the PyTorch folder.

    Attributes:
        prefix: of our paths that are in it, which the table does not have.
        adapters: it holds the adapters of that part, and nothing else; else all but these.
        spelled: the key of the file for one of the table.
    """

    file: str
    prefix: str
    table: Table
    adapters: bool = False
    spelled: Callable[[str], str] = _as_it_is


class File(NamedTuple):
    """A file of the PyTorch folder of one model.

    Attributes:
        sources: what our parameters in it are made of, by path.
        specs: dtype and shape of its tensors, by key.
    """

    file: str
    sources: dict[str, Source]
    specs: dict[str, tuple[np.dtype, tuple[int, ...]]]


def files_of(folder: Path, parts: Sequence[Part], params: Mapping[str, Any]) -> list[File]:
    """List the files that a model has.

    Args:
        folder: named in errors.
        params: shapes by path.

    Raises:
        InputError: a parameter, such as an adapter of another part, is in none of them.
    """
    files = []
    left = set(params)
    for part in parts:
        like = {
            path.removeprefix(part.prefix): leaf
            for path, leaf in params.items()
            if path.startswith(part.prefix) and path.endswith(ADAPTERS) is part.adapters
        }
        if like:
            made_of = {
                path: source._replace(keys=[part.spelled(key) for key in source.keys])
                for path, source in sources(part.table, like).items()
            }
            specs = {
                key: (FLOAT32, made_of[path].their_shape(leaf.shape))
                for path, leaf in like.items()
                for key in made_of[path].keys
            }
            named = {part.prefix + path: made_of[path] for path in like}
            files.append(File(part.file, named, specs))
            left -= named.keys()
    if left:
        expected, hint = "adapters in the decoder alone", "merge them first"
        raise InputError(folder, min(left), "an adapter", expected, hint)
    return files


def layer_of(tensor: Tensor, layer: int, stacked: bool) -> np.ndarray:
    """Read one layer of a tensor, or all of it."""
    shape = tensor.shape[1:] if stacked else tensor.shape
    start = tensor.start + layer * prod(shape) * tensor.dtype.itemsize
    return np.fromfile(tensor.file, tensor.dtype, prod(shape), offset=start).reshape(shape)


def write_files(output: Path, files: Sequence[File], found: Mapping[str, Tensor]) -> int:
    """Write our arrays as the files for PyTorch; returns how many tensors these have.

    Args:
        found: our arrays by path.
    """
    for each in files:
        (output / each.file).parent.mkdir(parents=True, exist_ok=True)
        with (output / each.file).open("w+b") as stream:
            writer = TensorWriter(stream, each.specs)
            for path, source in each.sources.items():
                for layer, key in enumerate(source.keys):
                    values = layer_of(found[path], layer, source.stacked)
                    writer.write(key, 0, source.transform.from_ours(values))
    return sum(len(each.specs) for each in files)


def compare_files(theirs: Path, files: Sequence[File], found: Mapping[str, Tensor]) -> Verdict:
    """Compare our arrays with the files for PyTorch, tensor by tensor, by hash.

    Args:
        found: our arrays by path.
    """
    verdict = Verdict([], [], [], [], [])
    for each in files:
        exported = read_file(theirs / each.file)
        verdict.added.extend(key for key in exported if key not in each.specs)
        verdict.missing.extend(key for key in each.specs if key not in exported)
        for path, source in each.sources.items():
            for layer, key in enumerate(source.keys):
                if key in exported:
                    values = layer_of(found[path], layer, source.stacked)
                    same = _hash(source.transform.from_ours(values)) == _hash(
                        layer_of(exported[key], 0, False)
                    )
                    (verdict.equal if same else verdict.different).append(key)
    return verdict


def _hash(values: np.ndarray) -> str:
    header = f"{values.dtype}{values.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(values).tobytes()).hexdigest()


def check_tensors(
    path: Path,
    found: Mapping[str, Tensor],
    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
) -> None:
    """Refuse other tensors than those of a configuration.

    Raises:
        InputError: it names the first.
    """
    check_shapes(
        path,
        {key: f"{tensor.shape} {tensor.dtype}" for key, tensor in found.items()},
        {key: f"{shape} {dtype}" for key, (dtype, shape) in specs.items()},
        "put the weights and the config.json of one model together",
    )
