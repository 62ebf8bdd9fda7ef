"""Imported folders: published weights in our layout, and all that leads back to them.

params/              Orbax checkpoint: `decoder/...`, `encoder/...`, `projector/...`
carried.safetensors  passthrough tensors, which stay as they were (Qwen2.5-VL's image tower)
config.json          our configuration of the parts that are in it
source/              the folder's other files as they were: configuration, tokenizer
manifest.json        every tensor of the source: its hash, and where it went
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from tumorchain_jax.convert.recognise import detect_family, read_base
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.weights.matching import FLOATS, Family, Match, Place, match
from tumorchain_jax.weights.orbax_folder import OrbaxFolder
from tumorchain_jax.weights.tensor_files import DTYPES, Tensor, as_bytes, cut, read_file

MANIFEST = "manifest.json"
PARAMS = "params"
PASSTHROUGH = "carried.safetensors"
SOURCE = "source"


class Hashes(NamedTuple):
    """SHA-256 hashes of a tensor's bytes.

    Attributes:
        source: of the source's bytes.
        stored: of the bytes stored here; None if they are the source's.
    """

    source: str
    stored: str | None = None


@dataclass(frozen=True)
class Entry:
    """Manifest entry of one tensor of the source.

    Attributes:
        file: of the source that it was in.
        sha256: of its bytes there.
        stored_sha256: of its bytes here, if stored in another dtype; else None.
        place: None if it is passed through.
    """

    key: str
    file: str
    dtype: np.dtype
    shape: tuple[int, ...]
    sha256: str
    stored_sha256: str | None
    place: Place | None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {"key": self.key, "file": self.file, "dtype": self.dtype.name}
        where = self.place._asdict() if self.place else {"carried": True}
        stored = {"kept_sha256": self.stored_sha256} if self.stored_sha256 else {}
        return {**plain, "shape": list(self.shape), "sha256": self.sha256, **stored, **where}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Entry":
        """The inverse of `to_dict`."""
        place = None if values.get("carried") else Place(values["path"], values["layer"])
        [dtype] = [dtype for dtype in DTYPES.values() if dtype.name == values["dtype"]]
        shape, stored = tuple(values["shape"]), values.get("kept_sha256")
        if Path(values["file"]).name != values["file"]:
            raise ValueError(f"file {values['file']!r}")
        return cls(values["key"], values["file"], dtype, shape, values["sha256"], stored, place)


class Imported:
    """Reader of an imported folder.

    Attributes:
        family: detected from the source's companions and keys.
        config: of the parts that are in it, as in `TumorChainConfig.to_dict`.
        dtype: of our arrays, if it was chosen.
        ignored: keys of the source that were left out by name.
        entries: of its tensors by key, in the order of the source.
        tensors: shapes and dtypes of the same; their bytes are read by `pieces`.
        matched: where each of them is.

    Raises:
        InputError: it is none, or damaged.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / MANIFEST
        values = read_json(path)
        try:
            name: str = values["family"]
            self.config: dict[str, Any] = read_json(folder / "config.json")["model"]
            self.dtype: str | None = values["dtype"]
            if self.dtype not in (None, *FLOATS):
                raise ValueError(f"dtype {self.dtype!r}")
            self.ignored: list[str] = values["ignored"]
            entries = [Entry.from_dict(entry) for entry in values["tensors"]]
            self.entries = {entry.key: entry for entry in entries}
            self.companions: dict[str, str] = dict(values["companions"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            found, expected = repr(str(error)), "what `tumorchain convert import` wrote"
            raise InputError(path, "manifest", found, expected, "import it again") from error
        self._check_companions()
        tensors = {
            entry.key: Tensor(entry.key, folder, entry.dtype, entry.shape, 0) for entry in entries
        }
        base = read_base(folder) if name == "peft" else None
        self.tensors: Mapping[str, Tensor] = tensors
        drop_head, tower = (values.get(each, False) is True for each in ("drop_head", "tower"))
        self.family: Family = detect_family(folder / SOURCE, tensors, base, drop_head, tower)
        if not _agrees(self.config, self.family.config):
            found, expected = "another model", f"that of {SOURCE}/"
            raise InputError(folder / "config.json", "model", found, expected, "import it again")
        self.matched: Match = match(folder, self.family, tensors, self.dtype)
        matched = self.matched
        places = {key: matched.places.get(key) for key in self.entries}
        if wrong := [key for key, entry in self.entries.items() if entry.place != places[key]]:
            found, expected = str(self.entries[wrong[0]].place), str(places[wrong[0]])
            raise InputError(path, wrong[0], found, expected, "import it again")
        self.arrays = OrbaxFolder(folder / PARAMS, matched.specs)
        self._passthrough = read_file(folder / PASSTHROUGH) if matched.passthrough else {}
        if lost := sorted({*matched.passthrough} - self._passthrough.keys()):
            raise InputError(
                folder / PASSTHROUGH, lost[0], "no such key", "this key", "import it again"
            )

    def dtype_of(self, key: str) -> np.dtype:
        """Dtype in which a tensor is stored."""
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
        """Read a tensor's rows as PyTorch has them, some at a time.

        Raises:
            InputError: at the end, if the bytes are not those that were written.
        """
        entry, digest = self.entries[key], hashlib.sha256()
        for rows, values in self._unchecked(entry):
            values = np.ascontiguousarray(values)
            digest.update(as_bytes(values))
            yield rows, values
        is_hashed = entry.stored_sha256 is not None or self.dtype_of(key) == entry.dtype
        if is_hashed and digest.hexdigest() != (entry.stored_sha256 or entry.sha256):
            found, expected = "other bytes", "the imported bytes"
            raise InputError(self.folder, key[:80], found, expected, "import it again")

    def whole(self, key: str) -> np.ndarray:
        """A tensor as PyTorch has it, checked as by `pieces`."""
        values = [values for _, values in self.pieces(key)]
        return np.concatenate(values) if self.entries[key].shape else values[0]

    def _unchecked(self, entry: Entry) -> Iterator[tuple[slice, np.ndarray]]:
        if entry.place is None:
            yield from self._passthrough[entry.key].pieces()
            return
        for rows in cut(entry.shape):
            piece = (rows.stop - rows.start, *entry.shape[1:]) if entry.shape else ()
            yield rows, self.arrays.read(*entry.place, rows, piece)

    def _check_companions(self) -> None:
        for name, sha256 in self.companions.items():
            path = self.folder / SOURCE / name
            if Path(name).name != name or path.is_symlink() or not path.is_file():
                found = "none" if Path(name).name == name else "a path out of the folder"
                expected = "the file that was imported"
                raise InputError(path, "file", found, expected, "import it again")
            if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                found, expected = "other bytes", "the imported bytes"
                raise InputError(path, "file", found, expected, "import it again")


def _agrees(found: Any, expected: Any) -> bool:
    """Whether all that `found` says is as expected; an older import says less."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        return all(key in expected and _agrees(found[key], expected[key]) for key in found)
    return json.dumps(found) == json.dumps(expected)


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
