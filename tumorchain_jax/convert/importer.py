"""Published weights -> an imported folder, a piece of a tensor at a time.

What is being written lies in a hidden folder beside the output, with a journal of the tensors that
are done. An import that was stopped goes on from there if the source is still the same; one that
failed leaves nothing. The output appears by rename.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from tqdm import tqdm

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.convert.imported import CARRIED, PARAMS, SOURCE, Entry, write_manifest
from tumorchain_jax.convert.recognise import as_folder, open_source
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import staging_path
from tumorchain_jax.models.weight_map import canonical
from tumorchain_jax.weights.matching import Family, Match, Place, match
from tumorchain_jax.weights.orbax_folder import OrbaxFolder
from tumorchain_jax.weights.pickles import SUFFIXES
from tumorchain_jax.weights.tensor_files import (
    Tensor,
    TensorWriter,
    as_bytes,
    check_finite,
    rounded,
)

JOURNAL = "journal.jsonl"
WEIGHTS = (".safetensors", ".gguf", *SUFFIXES)
COPIED = 32 * 2**20
"""Bytes; a file of the source that is larger is none of its small companions."""


def import_folder(
    source: Path, output: Path, dtype: str | None = None, base: Path | None = None
) -> list[Entry]:
    """Convert a folder of published weights.

    Args:
        source: a Hugging Face folder of Qwen2, Qwen2.5-VL or Llama; M3D's encoder; an adapter;
            or a GGUF file of Llama's family.
        output: must not be there yet.
        dtype: of our arrays; None keeps what each tensor has.
        base: of an adapter: the folder of its model, or what was imported from it.

    Returns:
        what became of each tensor.

    Raises:
        InputError: it cannot be read, is of no known family, does not fit its configuration, has a
            number that is not finite; there is no room; the output is there.
    """
    part = staging_path(output)
    with as_folder(source) as folder, open_source(folder, base) as (tensors, family):
        matched = match(folder, family, tensors, dtype)
        _check_copies(folder, family, tensors)
        done = _resume(part, _fingerprint(source, family, dtype))
        try:
            _check_room(part, tensors, matched, done)
        except InputError:
            if not done:
                shutil.rmtree(part)
            raise
        try:
            entries = _fill(part, folder, tensors, family, matched, dtype, done)
            part.rename(output)
        except Exception:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return entries


def _fill(
    part: Path,
    source: Path,
    tensors: Mapping[str, Tensor],
    family: Family,
    matched: Match,
    dtype: str | None,
    done: dict[str, str],
) -> list[Entry]:
    """Write all that an imported folder holds.

    Args:
        done: hashes of the tensors that are.
    """
    wanted = {
        key: tensor
        for key, tensor in tensors.items()
        if key in matched.places or key in matched.carried
    }
    _write(part, wanted, matched, done)
    entries = [
        Entry(key, t.file.name, t.dtype, t.shape, done[key], matched.places.get(key))
        for key, t in wanted.items()
    ]
    (part / "config.json").write_text(json.dumps({"model": family.config}, indent=1) + "\n")
    facts = {
        "tool": f"tumorchain_jax {__version__}",
        "notice": NOTICE,
        "companions": _copy_companions(source, part / SOURCE),
        "ignored": [key for key in tensors if key not in wanted],
    }
    write_manifest(part, family.name, dtype, entries, facts)
    (part / JOURNAL).unlink()
    return entries


def _check_room(
    part: Path, tensors: Mapping[str, Tensor], matched: Match, done: Mapping[str, str]
) -> None:
    needed = sum(tensors[key].nbytes for key in matched.carried if key not in done)
    for key, place in matched.places.items():
        if key not in done:
            needed += prod(tensors[key].shape) * matched.specs[place.path].dtype.itemsize
    free = shutil.disk_usage(part).free
    if free < needed:
        found, expected = f"{free} bytes free", f"{needed} or more"
        raise InputError(part.parent, "disk", found, expected, "make room")


def _fingerprint(source: Path, family: Family, dtype: str | None) -> str:
    """What must be the same for a stopped import to go on."""
    files = [source] if source.is_file() else sorted(source.iterdir())
    stats = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
        if file.suffix in WEIGHTS
    ]
    values = [str(source.absolute()), stats, family.name, family.config, dtype, __version__]
    return json.dumps(values)


def _resume(part: Path, fingerprint: str) -> dict[str, str]:
    """The hashes of tensors that are done; a stopped import of anything else is cleared away."""
    journal, done = part / JOURNAL, {}
    if journal.is_file():
        first, *lines = journal.read_text().splitlines(keepends=True) or [""]
        if first == fingerprint + "\n":
            # The last line may have been cut off.
            done = dict(json.loads(line) for line in lines if line.endswith("\n"))
    if not done:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
    journal.write_text("\n".join([fingerprint, *map(json.dumps, done.items())]) + "\n")
    return done


def _write(part: Path, tensors: Mapping[str, Tensor], matched: Match, done: dict[str, str]) -> None:
    """Put every tensor that is not done in its place; adds its hash to `done`."""
    params = part / PARAMS
    arrays = OrbaxFolder(params, matched.specs, create=not done)
    total = sum(tensor.nbytes for tensor in tensors.values())
    with ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(total=total, desc="import", unit="B", unit_scale=True, disable=None)
        )
        carried = None
        if matched.carried:
            specs = {key: (tensors[key].dtype, tensors[key].shape) for key in matched.carried}
            path = part / CARRIED
            stream = stack.enter_context(path.open("r+b" if done else "w+b"))
            carried = TensorWriter(stream, specs)
        journal: TextIO = stack.enter_context((part / JOURNAL).open("a"))
        for key, tensor in tensors.items():
            if key not in done:
                done[key] = _write_one(tensor, matched, arrays, carried)
                if carried:  # what the journal names must have been written
                    carried.flush()
                journal.write(json.dumps([key, done[key]]) + "\n")
                journal.flush()
            bar.update(tensor.nbytes)
    _write_zeros(arrays, matched)


def _write_zeros(arrays: OrbaxFolder, matched: Match) -> None:
    """Fill the layers of a stack that no tensor is for."""
    filled = {*matched.places.values()}
    for path, spec in matched.specs.items():
        for layer in spec.layers:
            if Place(path, layer) not in filled:
                shape = spec.source.transform.from_ours(np.empty(spec.layer_shape)).shape
                zeros = np.zeros(shape, spec.dtype)
                arrays.write(path, layer, slice(0, shape[0]), zeros).result()


def _write_one(
    tensor: Tensor, matched: Match, arrays: OrbaxFolder, carried: TensorWriter | None
) -> str:
    """Its hash."""
    digest = hashlib.sha256()
    place = matched.places.get(tensor.key)
    offset = 0
    for rows, values in tensor.pieces():
        if place is None:
            assert carried is not None
            carried.write(tensor.key, offset, values)
            digest.update(as_bytes(values))
        else:
            check_finite(tensor.file, tensor.key, values)
            dtype = arrays.specs[place.path].dtype
            ours = rounded(tensor.file, tensor.key, values, dtype)
            # It is hashed while it is being written.
            writing = arrays.write(*place, rows, ours)
            digest.update(as_bytes(values))
            writing.result()
        offset += values.nbytes
    return digest.hexdigest()


def _check_copies(source: Path, family: Family, tensors: Mapping[str, Tensor]) -> None:
    names = {canonical(family.renames, key): tensor for key, tensor in tensors.items()}
    for copy, original in family.copies:
        if copy in names and _digest(names[copy]) != _digest(names[original]):
            found = f"other numbers than {original}"
            expected = "the same, as the configuration ties them"
            raise InputError(source, copy, found, expected, "set tie_word_embeddings to false")


def _digest(tensor: Tensor) -> str:
    digest = hashlib.sha256()
    for _, values in tensor.pieces():
        digest.update(as_bytes(values))
    return digest.hexdigest()


def _copy_companions(source: Path, target: Path) -> dict[str, str]:
    """Copy the folder's small files; their hashes by name."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    hashes = {}
    for path in sorted(source.iterdir()):
        is_weights = path.suffix in WEIGHTS or path.name.endswith(".index.json")
        if path.is_file() and not is_weights and path.stat().st_size <= COPIED:
            shutil.copyfile(path, target / path.name)
            hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def describe(family: Family, tensors: Mapping[str, Tensor], matched: Match) -> dict[str, Any]:
    """What an import would make of a folder, as plain values."""
    return {
        "family": family.name,
        "config": family.config,
        "tensors": len(tensors),
        "bytes": sum(tensor.nbytes for tensor in tensors.values()),
        "dtypes": sorted({tensor.dtype.name for tensor in tensors.values()}),
        "parameters": {
            path: {"shape": list(spec.shape), "from": spec.source.keys[0]}
            for path, spec in matched.specs.items()
        },
        "carried": matched.carried,
        "ignored": [
            key for key in tensors if key not in matched.places and key not in matched.carried
        ],
    }
