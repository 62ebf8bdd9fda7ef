"""Import of published weights into a folder of ours, a piece of a tensor at a time.

An import writes to a hidden folder beside the output, with a journal of the tensors that are done.
If stopped, it resumes there as long as the source is unchanged; if it fails, it leaves nothing. The
output appears by rename.
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
from tumorchain_jax.convert.adapter import BASE_HEAD, HEAD
from tumorchain_jax.convert.adapter_config import MERGE
from tumorchain_jax.convert.imported import (
    PARAMS,
    PASSTHROUGH,
    SOURCE,
    Entry,
    Hashes,
    write_manifest,
)
from tumorchain_jax.convert.recognise import as_folder, open_source
from tumorchain_jax.convert.verifier import digest, open_weights
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import reserved
from tumorchain_jax.weights.matching import Family, Match, Place, check_copies, match
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
    source: Path,
    output: Path,
    dtype: str | None = None,
    base: Path | None = None,
    drop_head: bool = False,
    tower: bool = False,
) -> list[Entry]:
    """Convert a folder of published weights.

    Args:
        source: a Hugging Face folder of Qwen2, Qwen2.5-VL or Llama; M3D's encoder; an adapter;
            an image classifier of timm; or a GGUF file of Llama's family.
        output: must not be there yet.
        dtype: of our arrays; None keeps what each tensor has.
        base: of an adapter: the folder of its model, or what was imported from it.
        drop_head: of an image classifier: its head is stored for export, not a parameter.
        tower: of Qwen2.5-VL: its vision tower becomes parameters too, else it is stored for export.

    Returns:
        what became of each tensor.

    Raises:
        InputError: it cannot be read, is of no known family, does not fit its configuration, has a
            number that is not finite; there is no room; the output is there.
    """
    with (
        reserved(output) as part,
        as_folder(source) as folder,
        open_source(folder, base, drop_head, tower) as (tensors, family),
    ):
        matched = match(folder, family, tensors, dtype)
        check_copies(folder, family, tensors)
        _check_base_head(folder, tensors, base)
        done = _resume(part, _fingerprint(source, family, dtype))
        try:
            _check_room(part, tensors, matched, done)
        except InputError:
            if not done:
                shutil.rmtree(part)
            raise
        chosen = {"drop_head": drop_head, "tower": tower}
        try:
            entries = _fill(part, folder, tensors, family, matched, dtype, done, chosen)
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
    done: dict[str, Hashes],
    chosen: dict[str, bool],
) -> list[Entry]:
    """Write all that an imported folder holds.

    Args:
        done: hashes of the tensors that are.
        chosen: options that the manifest must repeat.
    """
    wanted = {
        key: tensor
        for key, tensor in tensors.items()
        if key in matched.places or key in matched.passthrough
    }
    _write(part, wanted, matched, done)
    entries = [
        Entry(key, t.file.name, t.dtype, t.shape, *done[key], matched.places.get(key))
        for key, t in wanted.items()
    ]
    (part / "config.json").write_text(json.dumps({"model": family.config}, indent=1) + "\n")
    facts: dict[str, Any] = {
        "tool": f"tumorchain_jax {__version__}",
        "notice": NOTICE,
        "companions": _copy_companions(source, part / SOURCE),
        "ignored": [key for key in tensors if key not in wanted],
    }
    facts |= {name: True for name, given in chosen.items() if given}
    write_manifest(part, family.name, dtype, entries, facts)
    (part / JOURNAL).unlink()
    return entries


def _check_room(
    part: Path, tensors: Mapping[str, Tensor], matched: Match, done: Mapping[str, Hashes]
) -> None:
    needed = sum(tensors[key].nbytes for key in matched.passthrough if key not in done)
    for key, place in matched.places.items():
        if key not in done:
            needed += prod(tensors[key].shape) * matched.specs[place.path].dtype.itemsize
    free = shutil.disk_usage(part).free
    if free < needed:
        found, expected = f"{free} bytes free", f"{needed} or more"
        raise InputError(part.parent, "disk", found, expected, "free disk space")


def _fingerprint(source: Path, family: Family, dtype: str | None) -> str:
    """State of a source that must be the same for a stopped import to resume."""
    files = [source] if source.is_file() else sorted(source.iterdir())
    stats = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
        if file.suffix in WEIGHTS
    ]
    values = [str(source.absolute()), stats, family.name, family.config, dtype, __version__]
    return json.dumps(values)


def _resume(part: Path, fingerprint: str) -> dict[str, Hashes]:
    """Read the hashes of tensors that are done; remove a stopped import of anything else."""
    journal, done = part / JOURNAL, {}
    if journal.is_file():
        first, *lines = journal.read_text().splitlines(keepends=True) or [""]
        if first == fingerprint + "\n":
            # The last line may have been cut off.
            done = {
                key: Hashes(*hashes)
                for key, *hashes in (json.loads(line) for line in lines if line.endswith("\n"))
            }
    if not done:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
    tensors = (json.dumps([key, *hashes]) for key, hashes in done.items())
    journal.write_text("\n".join([fingerprint, *tensors]) + "\n")
    return done


def _write(
    part: Path, tensors: Mapping[str, Tensor], matched: Match, done: dict[str, Hashes]
) -> None:
    """Put every tensor that is not done in its place; adds its hash to `done`."""
    params = part / PARAMS
    arrays = OrbaxFolder(params, matched.specs, create=not done)
    total = sum(tensor.nbytes for tensor in tensors.values())
    with ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(total=total, desc="import", unit="B", unit_scale=True, disable=None)
        )
        passthrough = None
        if matched.passthrough:
            specs = {key: (tensors[key].dtype, tensors[key].shape) for key in matched.passthrough}
            path = part / PASSTHROUGH
            stream = stack.enter_context(path.open("r+b" if done else "w+b"))
            passthrough = TensorWriter(stream, specs)
        journal: TextIO = stack.enter_context((part / JOURNAL).open("a"))
        for key, tensor in tensors.items():
            if key not in done:
                done[key] = _write_one(tensor, matched, arrays, passthrough)
                if passthrough:  # what the journal names must have been written
                    passthrough.flush()
                journal.write(json.dumps([key, *done[key]]) + "\n")
                journal.flush()
            bar.update(tensor.nbytes)
    _write_zeros(arrays, matched)


def _write_zeros(arrays: OrbaxFolder, matched: Match) -> None:
    """Fill the layers of a stack that no tensor is for."""
    filled = {*matched.places.values()}
    for path, spec in matched.specs.items():
        for layer in spec.layers:
            if Place(path, layer) not in filled:
                shape = spec.source.their_shape(spec.shape)
                zeros = np.zeros(shape, spec.dtype)
                arrays.write(path, layer, slice(0, shape[0]), zeros).result()


def _pad(tensor: Tensor, arrays: OrbaxFolder, place: Place) -> None:
    """Fill a layer with zeros that is larger than the tensor."""
    spec = arrays.specs[place.path]
    shape = spec.source.their_shape(spec.shape)
    if shape != tensor.shape:
        arrays.write(*place, slice(0, shape[0]), np.zeros(shape, spec.dtype)).result()


def _write_one(
    tensor: Tensor, matched: Match, arrays: OrbaxFolder, passthrough: TensorWriter | None
) -> Hashes:
    """Write one tensor; returns the hashes of its source bytes and of its stored bytes."""
    digest, stored = hashlib.sha256(), hashlib.sha256()
    place = matched.places.get(tensor.key)
    offset = 0
    for rows, values in tensor.pieces():
        if place is None:
            assert passthrough is not None
            passthrough.write(tensor.key, offset, values)
            digest.update(as_bytes(values))
        else:
            check_finite(tensor.file, tensor.key, values)
            dtype = arrays.specs[place.path].dtype
            ours = rounded(tensor.file, tensor.key, values, dtype)
            if rows.start == 0:
                _pad(tensor, arrays, place)
            # It is hashed while it is being written.
            writing = arrays.write(*place, rows, ours)
            digest.update(as_bytes(values))
            if ours is not values:
                stored.update(as_bytes(ours))
            writing.result()
        offset += values.nbytes
    is_unchanged = place is None or arrays.specs[place.path].dtype == tensor.dtype
    return Hashes(digest.hexdigest(), None if is_unchanged else stored.hexdigest())


def _check_base_head(source: Path, tensors: Mapping[str, Tensor], base: Path | None) -> None:
    """Refuse an adapter that brings another head for its base than the base has.

    PEFT takes the adapter's. Ours is added to the base's own.
    """
    if base is None or BASE_HEAD not in tensors:
        return
    ours = tensors[BASE_HEAD]
    with open_weights(base) as (theirs, _):
        head = theirs.get(f"{HEAD}.weight")
        if head is None or digest(head, ours.dtype) != digest(ours, ours.dtype):
            found, expected = "other numbers than the base's", "the same"
            raise InputError(source, BASE_HEAD, found, expected, MERGE)


def _copy_companions(source: Path, target: Path) -> dict[str, str]:
    """Copy the folder's small files; returns their hashes by name.

    Raises:
        InputError: one is a link to a file elsewhere, whose content is none of the model's.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    hashes = {}
    # The Hub's cache keeps the files of a snapshot as links to the blobs beside all snapshots.
    homes = (source.resolve(), source.resolve().parent.parent / "blobs")
    for path in sorted(source.iterdir()):
        is_weights = path.suffix in WEIGHTS or path.name.endswith(".index.json")
        if path.is_file() and not is_weights and path.stat().st_size <= COPIED:
            if not any(path.resolve().is_relative_to(home) for home in homes):
                found, expected = "a link to a file elsewhere", "a file in the folder"
                raise InputError(path, "file", found, expected, "put the file itself there")
            shutil.copyfile(path, target / path.name)
            hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def describe(family: Family, tensors: Mapping[str, Tensor], matched: Match) -> dict[str, Any]:
    """Describe what an import makes of a folder, as plain values."""
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
        "passthrough": matched.passthrough,
        "ignored": [
            key for key in tensors if key not in matched.places and key not in matched.passthrough
        ],
    }
