"""Orbax checkpoints, written and read a piece of an array at a time.

Orbax takes whole arrays, and ours hold all layers: gigabytes each. So Orbax writes a checkpoint of
the same tree with scalars in it, and TensorStore puts the true arrays in their places. Orbax then
restores it as one of its own, each process reading only what its shards need.

On disk a chunk is one layer, cut into pieces along the axis that was PyTorch's first. A
transposed weight is stored in Fortran order: its chunks are PyTorch's own bytes, and nothing is
transposed before someone restores it.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.weight_map import Source
from tumorchain_jax.weights.tensor_files import cut


@dataclass(frozen=True)
class ArraySpec:
    """Specification of one of our arrays.

    Attributes:
        shape: with the layers in front, if its source is stacked.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    source: Source

    @property
    def layers(self) -> list[int | None]:
        """The layers that it stacks; None alone if it stacks none."""
        return [*range(self.shape[0])] if self.source.stacked else [None]

    @property
    def layer_shape(self) -> tuple[int, ...]:
        """Shape of one layer, in our layout."""
        return self.shape[1:] if self.source.stacked else self.shape

    @property
    def pieces(self) -> list[slice]:
        """How the rows of a layer are cut."""
        shape, rows = self.layer_shape, self.source.transform.rows
        return cut((shape[rows], prod(shape) // shape[rows]) if shape else ())


class OrbaxFolder:
    """Access to the arrays of a checkpoint.

    Args:
        create: make the checkpoint, with nothing in its arrays yet.
    """

    def __init__(self, folder: Path, specs: Mapping[str, ArraySpec], create: bool = False):
        self.folder, self.specs = folder, specs
        self._stores: dict[str, Any] = {}
        if create:
            _write_skeleton(folder, {path: spec.dtype for path, spec in specs.items()})
            for path in specs:
                for file in self._array_folder(path).iterdir():
                    file.unlink()
                self._open(path, create=True)

    def write(self, path: str, layer: int | None, rows: slice, values: np.ndarray) -> Any:
        """Begin to put some rows of PyTorch's into a layer of an array; `.result()` waits."""
        values = self.specs[path].source.transform.to_ours(values)
        return self._window(path, layer, rows, values.shape).write(values)

    def read(
        self, path: str, layer: int | None, rows: slice, shape: tuple[int, ...] | None = None
    ) -> np.ndarray:
        """The inverse of `write`.

        Args:
            shape: of these rows in PyTorch, where they are shorter than ours.

        Raises:
            InputError: the array is damaged or not there.
        """
        try:
            transform = self.specs[path].source.transform
            ours = transform.to_ours(np.broadcast_to(np.int8(0), shape)).shape if shape else None
            values = self._window(path, layer, rows, ours).read().result()
        except (ValueError, OSError) as error:
            found = str(error).splitlines()[0][:200]
            expected = "a whole array"
            raise InputError(self.folder, path, found, expected, "import it again") from error
        return transform.from_ours(values)

    def _window(
        self, path: str, layer: int | None, rows: slice, shape: tuple[int, ...] | None
    ) -> Any:
        spec = self.specs[path]
        inside: list[Any] = [slice(0, size) for size in shape or spec.layer_shape]
        if inside:
            inside[spec.source.transform.rows] = rows
        return self._open(path)[tuple(inside) if layer is None else (layer, *inside)]

    def _open(self, path: str, create: bool = False) -> Any:
        if path in self._stores:
            return self._stores[path]
        spec = self.specs[path]
        location = {"driver": "file", "path": f"{self._array_folder(path)}/"}
        stored = {
            "driver": "zarr",
            "kvstore": location,
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
        }
        if create:
            stored["metadata"] = {"compressor": None, **_layout(spec)}
        opening = ts.open(
            stored, dtype=spec.dtype, shape=spec.shape, create=create, open=not create
        )
        return self._stores.setdefault(path, opening.result())

    def _array_folder(self, path: str) -> Path:
        return self.folder / path.replace("/", ".")


def _layout(spec: ArraySpec) -> dict[str, Any]:
    """Choose chunks of one piece of one layer, in the order of PyTorch's own bytes."""
    rows, chunk = spec.source.transform.rows, [*spec.layer_shape]
    if chunk:
        chunk[rows] = spec.pieces[0].stop
    if spec.source.stacked:
        chunk = [1, *chunk]
    return {"chunks": chunk, "order": "F" if rows and len(chunk) > 1 else "C"}


def _write_skeleton(folder: Path, dtypes: Mapping[str, np.dtype]) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=False)
    tree = unflatten({path: np.zeros((1,), dtype) for path, dtype in dtypes.items()})
    with _quiet(), ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(folder.absolute(), ocp.args.PyTreeSave(tree))
    (folder / "commit_success.txt").unlink(missing_ok=True)  # it tells where it was written


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Orbax's warning that it wrote no OCDBT, as it was asked to."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
