"""Export of an imported folder: the published folder that it came from, for PyTorch."""

import hashlib
import json
import shutil
from math import prod
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tumorchain_jax.convert.adapter import STEM
from tumorchain_jax.convert.imported import SOURCE, Entry, Imported
from tumorchain_jax.convert.merge import Merged
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.weights.matching import FLOATS
from tumorchain_jax.weights.tensor_files import DTYPES, INDEX, TensorWriter, as_bytes, rounded

DTYPE_FIELDS = ("dtype", "torch_dtype")
"""What newer and older transformers call it in config.json."""


def export_folder(
    source: Path, output: Path, dtype: str | None = None, adapter: Path | None = None
) -> dict[str, str]:
    """Write the tensors of an imported folder as PyTorch had them, and its other files.

    Args:
        dtype: of all tensors; None gives each its own again.
        adapter: an imported adapter, to be merged into the weights.

    Returns:
        the hash of each tensor that was written, by key.

    Raises:
        InputError: it is no imported folder, or damaged; the adapter is of another base; the output
            is there.
    """
    imported = Imported(source)
    weights = Merged(imported, adapter) if adapter else imported
    with atomic_directory(output) as part:
        hashes = _write(imported, weights, part, dtype)
        for name in imported.companions:
            shutil.copyfile(source / SOURCE / name, part / name)
        if dtype and (part / "config.json").is_file():
            _name_dtype(part / "config.json", dtype)
    return hashes


def _write(
    imported: Imported, weights: Imported | Merged, part: Path, dtype: str | None
) -> dict[str, str]:
    files: dict[str, list[Entry]] = {}
    for entry in imported.entries.values():
        files.setdefault(entry.file, []).append(entry)
    total = sum(entry.nbytes for entry in imported.entries.values())
    hashes = {}
    where = {}
    with tqdm(total=total, desc="export", unit="B", unit_scale=True, disable=None) as bar:
        for file, entries in files.items():
            name = _name(file, alone=len(files) == 1)
            specs = {e.key: (_dtype(e, dtype), e.shape) for e in entries}
            with (part / name).open("w+b") as stream:
                writer = TensorWriter(stream, specs)
                for entry in entries:
                    hashes[entry.key] = _write_one(weights, entry, writer, specs[entry.key][0])
                    where[entry.key] = name
                    bar.update(entry.nbytes)
    if len(files) > 1:
        sizes = sum(prod(e.shape) * _dtype(e, dtype).itemsize for e in imported.entries.values())
        index = {"metadata": {"total_size": sizes}, "weight_map": where}
        (part / INDEX.format(stem="model")).write_text(json.dumps(index, indent=2) + "\n")
    return hashes


def _name(file: str, alone: bool) -> str:
    """Name a file as transformers, PEFT and our own reader look for; pickles have other names."""
    stem = Path(file).stem
    if alone and not stem.startswith(STEM):
        stem = "model"
    return f"{stem.replace('pytorch_model', 'model')}.safetensors"


def _dtype(entry: Entry, dtype: str | None) -> np.dtype:
    if dtype is None or entry.dtype.name not in FLOATS:
        return entry.dtype
    return next(each for each in DTYPES.values() if each.name == dtype)


def _write_one(
    weights: Imported | Merged, entry: Entry, writer: TensorWriter, dtype: np.dtype
) -> str:
    """Write one tensor; returns the SHA-256 of its bytes as written.

    Raises:
        InputError: the stored bytes differ from those imported, or a value does not fit into that
            dtype.
    """
    digest, offset = hashlib.sha256(), 0
    for _, stored in weights.pieces(entry.key):
        values = rounded(weights.folder, entry.key, np.ascontiguousarray(stored), dtype)
        digest.update(as_bytes(values))
        writer.write(entry.key, offset, values)
        offset += values.nbytes
    return digest.hexdigest()


def _name_dtype(path: Path, dtype: str) -> None:
    """Name the dtype in a configuration, which transformers believes more than the weights."""
    fields = json.loads(path.read_text())
    for values in (fields, fields.get("text_config", {}), fields.get("vision_config", {})):
        values |= {name: dtype for name in DTYPE_FIELDS if name in values}
    path.write_text(json.dumps(fields, indent=2) + "\n")
