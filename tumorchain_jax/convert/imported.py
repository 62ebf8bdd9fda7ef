"""An imported folder: published weights in our layout, and all that leads back to them.

params/              Orbax checkpoint: `decoder/...`, `encoder/...`, `projector/...`
carried.safetensors  tensors that are not ours, as they were (Qwen2.5-VL's image tower)
config.json          our configuration of the parts that are in it
source/              the folder's other files as they were: configuration, tokenizer
manifest.json        every tensor of the source: its hash, and where it went
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from tumorchain_jax.convert.recognise import read_base, recognise
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.weights.matching import FLOATS, Family, Match, Place, match
from tumorchain_jax.weights.orbax_folder import OrbaxFolder
from tumorchain_jax.weights.tensor_files import DTYPES, Tensor, cut, read_file

MANIFEST = "manifest.json"
PARAMS = "params"
CARRIED = "carried.safetensors"
SOURCE = "source"


@dataclass(frozen=True)
class Entry:
    """What the manifest says of one tensor of the source.

    Attributes:
        file: of the source that it was in.
        sha256: of its bytes there.
        place: None if it is carried.
    """

    key: str
    file: str
    dtype: np.dtype
    shape: tuple[int, ...]
    sha256: str
    place: Place | None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {"key": self.key, "file": self.file, "dtype": self.dtype.name}
        where = self.place._asdict() if self.place else {"carried": True}
        return {**plain, "shape": list(self.shape), "sha256": self.sha256, **where}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Entry":
        """The inverse of `to_dict`."""
        place = None if values.get("carried") else Place(values["path"], values["layer"])
        [dtype] = [dtype for dtype in DTYPES.values() if dtype.name == values["dtype"]]
        shape = tuple(values["shape"])
        return cls(values["key"], values["file"], dtype, shape, values["sha256"], place)


class Imported:
    """An imported folder, opened.

    Attributes:
        family: what the source was recognised as.
        config: of the parts that are in it, as in `TumorChainConfig.to_dict`.
        dtype: of our arrays, if it was chosen.
        ignored: keys of the source that were left out by name.
        entries: of its tensors by key, in the order of the source.

    Raises:
        InputError: it is none, or damaged.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / MANIFEST
        values = read_json(path)
        try:
            self.family: str = values["family"]
            self.config: dict[str, Any] = read_json(folder / "config.json")["model"]
            self.dtype: str | None = values["dtype"]
            if self.dtype not in (None, *FLOATS):
                raise ValueError(f"dtype {self.dtype!r}")
            self.ignored: list[str] = values["ignored"]
            entries = [Entry.from_dict(entry) for entry in values["tensors"]]
            self.entries = {entry.key: entry for entry in entries}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found, expected = repr(str(error)), "what `tumorchain convert import` wrote"
            raise InputError(path, "manifest", found, expected, "import it again") from error
        tensors = {
            entry.key: Tensor(entry.key, folder, entry.dtype, entry.shape, 0) for entry in entries
        }
        base = read_base(folder) if self.family == "peft" else None
        family: Family = recognise(folder / SOURCE, tensors, base)
        matched: Match = match(folder, family, tensors, self.dtype)
        places = {key: matched.places.get(key) for key in self.entries}
        if wrong := [key for key, entry in self.entries.items() if entry.place != places[key]]:
            found, expected = str(self.entries[wrong[0]].place), str(places[wrong[0]])
            raise InputError(path, wrong[0], found, expected, "import it again")
        self.arrays = OrbaxFolder(folder / PARAMS, matched.specs)
        self._carried = read_file(folder / CARRIED) if matched.carried else {}
        if lost := sorted({*matched.carried} - self._carried.keys()):
            raise InputError(folder / CARRIED, lost[0], "no such key", "it", "import it again")

    def dtype_of(self, key: str) -> np.dtype:
        """What a tensor is kept as."""
        entry = self.entries[key]
        return self.arrays.specs[entry.place.path].dtype if entry.place else entry.dtype

    def restore(self, places: Mapping[str, jax.ShapeDtypeStruct] | None = None) -> Any:
        """The parameters as a tree of arrays.

        Args:
            places: the dtype and sharding of the array at each path; each process reads only what
                its shards need. Without them all goes to the first device as it is.
        """
        first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        flat = {
            path: places[path]
            if places
            else jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=first)
            for path, spec in self.arrays.specs.items()
        }
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(self.arrays.folder.absolute(), unflatten(flat))

    def pieces(self, key: str) -> Iterator[tuple[slice, np.ndarray]]:
        """A tensor's rows as PyTorch has them, some at a time."""
        place = self.entries[key].place
        if place is None:
            yield from self._carried[key].pieces()
        else:
            for rows in cut(self.entries[key].shape):
                yield rows, self.arrays.read(*place, rows)


def write_manifest(
    folder: Path, family: str, dtype: str | None, entries: list[Entry], facts: dict[str, Any]
) -> None:
    """Write `manifest.json`.

    Args:
        facts: whatever else it should say.
    """
    values = {
        **facts,
        "family": family,
        "dtype": dtype,
        "tensors": [entry.to_dict() for entry in entries],
    }
    (folder / MANIFEST).write_text(json.dumps(values, indent=1) + "\n")
