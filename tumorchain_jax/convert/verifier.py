"""Comparison of two folders of weights, tensor by tensor, by hash of the bytes on disk."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tumorchain_jax.convert.imported import MANIFEST, Imported
from tumorchain_jax.convert.recognise import open_tensors
from tumorchain_jax.weights.tensor_files import Tensor, as_bytes

Pieces = Callable[[], Iterator[tuple[slice, np.ndarray]]]


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison.

    Attributes:
        equal, different: keys of tensors that are in both.
        missing: keys of the first folder that the second has not.
        added: keys of the second folder that the first has not.
        ignored: keys of the first folder that its import left out by name.
    """

    equal: list[str]
    different: list[str]
    missing: list[str]
    added: list[str]
    ignored: list[str]

    @property
    def same(self) -> bool:
        """Whether nothing but what was left out by name differs."""
        return not (self.different or self.missing or self.added)


def verify(source: Path, converted: Path) -> Verdict:
    """Compare a source with what was imported from it, or with what was exported again.

    A folder with other dtypes is compared after the source's numbers were rounded as it was.

    Raises:
        InputError: a folder cannot be read.
    """
    with open_weights(converted) as (ours, ignored), open_weights(source) as (theirs, _):
        return _compare(theirs, ours, ignored)


def _compare(
    theirs: Mapping[str, "_Tensor"], ours: Mapping[str, "_Tensor"], ignored: list[str]
) -> Verdict:
    shared = [key for key in theirs if key in ours]
    equal: list[str] = []
    different: list[str] = []
    for key in tqdm(shared, desc="verify", unit="tensor", disable=None):
        same = digest(theirs[key], ours[key].dtype) == digest(ours[key], ours[key].dtype)
        (equal if same and theirs[key].shape == ours[key].shape else different).append(key)
    missing = [key for key in theirs if key not in ours and key not in ignored]
    added = [key for key in ours if key not in theirs]
    return Verdict(equal, different, missing, added, ignored)


@dataclass(frozen=True)
class _Tensor:
    dtype: np.dtype
    shape: tuple[int, ...]
    pieces: Pieces


@contextmanager
def open_weights(folder: Path) -> Iterator[tuple[Mapping[str, _Tensor], list[str]]]:
    """Open a folder of published weights, or what was imported from one.

    Yields:
        its tensors by key; the keys that its import left out.

    Raises:
        InputError: it cannot be read.
    """
    if (folder / MANIFEST).is_file():
        imported = Imported(folder)
        tensors = {
            key: _Tensor(imported.dtype_of(key), entry.shape, partial(imported.pieces, key))
            for key, entry in imported.entries.items()
        }
        yield tensors, imported.ignored
        return
    with open_tensors(folder) as found:
        yield {key: _Tensor(t.dtype, t.shape, t.pieces) for key, t in found.items()}, []


def digest(tensor: "_Tensor | Tensor", dtype: np.dtype) -> str:
    """Hash a tensor's numbers as those of another dtype."""
    sums = hashlib.sha256()
    for _, values in tensor.pieces():
        sums.update(as_bytes(values.astype(dtype, copy=False)))
    return sums.hexdigest()
