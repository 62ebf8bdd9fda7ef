"""Safetensors files, read and written in pieces, so that no whole tensor is held in memory.

The format (huggingface/safetensors, README): eight bytes that give the length of a JSON header; the
header, {key: {dtype, shape, data_offsets}}; the tensors' bytes, without gaps. A checkpoint may be
in several files, with an index of which key is in which. Everything that a header claims is
checked against the file before a byte of a tensor is read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from tumorchain_jax.core.errors import InputError

INDEX = "{stem}.safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes; the reference reader refuses longer headers too."""
MAX_AXES = 8
PIECE = 2**24
"""Numbers that are read, hashed and written at once, where a tensor can be cut so small."""
DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
EXPONENT = {
    DTYPES["BF16"]: (np.uint16, 0x7F80),
    DTYPES["F16"]: (np.uint16, 0x7C00),
    DTYPES["F32"]: (np.uint32, 0x7F800000),
}
"""The bits that are all set in infinities and NaNs."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Location of a tensor in a file.

    Attributes:
        start: byte of the file at which it begins.
    """

    key: str
    file: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize

    def pieces(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Its rows from first to last, some at a time: which, and the values."""
        with self.file.open("rb") as stream:
            for rows in cut(self.shape):
                shape = (rows.stop - rows.start, *self.shape[1:]) if self.shape else ()
                stride = prod(self.shape[1:]) * self.dtype.itemsize
                stream.seek(self.start + rows.start * stride)
                yield rows, np.fromfile(stream, self.dtype, prod(shape)).reshape(shape)


def cut(shape: Sequence[int]) -> list[slice]:
    """Cut a tensor's rows into about equal pieces of at most `PIECE` (but at least one row)."""
    rows = shape[0] if shape else 1
    most = max(1, PIECE // max(1, prod(shape[1:])))
    size = -(-rows // max(1, -(-rows // most)))
    return [slice(start, min(start + size, rows)) for start in range(0, max(1, rows), size or 1)]


def read_folder(folder: Path, stem: str = "model") -> dict[str, Tensor]:
    """Read the headers of `STEM.safetensors`, or of the files that its index names.

    Raises:
        InputError: there are none; a file is missing, truncated or damaged; index and files
            disagree.
    """
    index, single = folder / INDEX.format(stem=stem), folder / f"{stem}.safetensors"
    if not index.is_file():
        if not single.is_file():
            expected = f"{single.name} or {index.name}"
            _refuse(folder, "weights", "neither", expected, "complete the folder")
        return read_file(single)
    where = _weight_map(index)
    present = {path.name for path in folder.iterdir()}
    tensors: dict[str, Tensor] = {}
    for name in dict.fromkeys(where.values()):
        if Path(name).name != name or name not in present:
            expected = "every file it names"
            _refuse(index, repr(name[:80]), "no such file", expected, "complete the folder")
        for key, tensor in read_file(folder / name).items():
            if where.get(key) != name:
                found = f"it in {name}"
                _refuse(index, key, found, str(where.get(key, "no such key")), "download it again")
            tensors[key] = tensor
    if absent := sorted(where.keys() - tensors.keys()):
        file = folder / where[absent[0]]
        _refuse(file, absent[0], "no such key", "all that the index names", "download it again")
    return tensors


def _weight_map(index: Path) -> dict[str, str]:
    try:
        where = json.loads(index.read_bytes())["weight_map"]
        if where and all(isinstance(name, str) for name in where.values()):
            return where
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    _refuse(index, "weight_map", "none that can be read", "{key: file}", "download it again")


def read_file(path: Path) -> dict[str, Tensor]:
    """Read the header of one file: its tensors in the order of their bytes.

    Raises:
        InputError: it cannot be read, is truncated, or its header is not sound.
    """
    hint = "download it again"
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                _refuse(path, "header", f"a file of {size} bytes", f"{length + 8} or more", hint)
            if length > MAX_HEADER:
                _refuse(path, "header", f"{length} bytes", f"at most {MAX_HEADER}", hint)
            text = stream.read(length)
    except OSError as error:
        _refuse(path, "file", str(error), "a file that can be read", "check its permissions")
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        tensors = [_tensor(path, key, fields, 8 + length) for key, fields in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _refuse(path, "header", repr(str(error)[:200]), "keys, dtypes, shapes and offsets", hint)
    end = 8 + length
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.nbytes)):
        if tensor.start != end:
            kind = "an overlap" if tensor.start < end else "a gap"
            expected = "tensors one after the other"
            _refuse(path, tensor.key, f"{kind} at byte {tensor.start}", expected, hint)
        end += tensor.nbytes
    if end != size:
        _refuse(path, "size", f"{size} bytes", f"{end}", hint)
    return {tensor.key: tensor for tensor in sorted(tensors, key=lambda tensor: tensor.start)}


def _tensor(path: Path, key: str, fields: Mapping[str, Any], data: int) -> Tensor:
    name, shape, (start, stop) = fields["dtype"], fields["shape"], fields["data_offsets"]
    if name not in DTYPES:
        _refuse(path, f"{key}: dtype", str(name), " ".join(DTYPES), "convert it first")
    if len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
        raise ValueError(f"{key}: {fields}")
    tensor = Tensor(key, path, DTYPES[name], tuple(shape), data + start)
    if tensor.nbytes != stop - start:
        expected = f"{tensor.nbytes} for {tuple(shape)} {name}"
        _refuse(path, key, f"{stop - start} bytes", expected, "download it again")
    return tensor


def as_bytes(values: np.ndarray) -> memoryview:
    """View an array's bytes, row by row, of bfloat16 too, which has no buffer of its own."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def rounded(source: Path, key: str, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cast a tensor's numbers to another dtype.

    Raises:
        InputError: one of them is too large for it, or was not finite before.
    """
    if dtype == values.dtype:
        return values
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    check_finite(source, key, cast)
    return cast


def check_finite(source: Path, key: str, values: np.ndarray) -> None:
    """Refuse NaNs and infinities: no sound weights have any.

    Raises:
        InputError: there is one.
    """
    kind, mask = EXPONENT[values.dtype]
    bits = values.reshape(-1).view(kind) & kind(mask)
    if bits.size and bits.max() == mask:
        found, expected = f"NaN or infinity as {values.dtype}", "finite numbers"
        raise InputError(source, key, found, expected, "choose another --dtype, or source")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as float32 into one file, by path.

    safetensors itself makes files that their owner alone can read; this one has the usual mode.
    """
    path.touch()
    mode = path.stat().st_mode
    plain = {name: np.ascontiguousarray(leaf, np.float32) for name, leaf in arrays.items()}
    save_file(plain, path, metadata={"format": "np"})
    path.chmod(mode)


def _refuse(subject: object, field: str, found: str, expected: str, hint: str) -> NoReturn:
    raise InputError(subject, field, found, expected, hint)


class TensorWriter:
    """Writer of one file: the header first, then each tensor piece by piece.

    Args:
        made_by: the framework that the header names: transformers opens `pt` alone.
    """

    def __init__(
        self,
        stream: BinaryIO,
        tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
        made_by: str = "pt",
    ):
        header: dict[str, Any] = {"__metadata__": {"format": made_by}}
        self._starts, end = {}, 0
        for key, (dtype, shape) in tensors.items():
            start, end = end, end + prod(shape) * dtype.itemsize
            header[key] = {
                "dtype": NAMES[dtype],
                "shape": list(shape),
                "data_offsets": [start, end],
            }
            self._starts[key] = start
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # the bytes of tensors begin at a multiple of eight
        stream.write(len(text).to_bytes(8, "little") + text)
        self._stream, self._data = stream, 8 + len(text)
        stream.truncate(self._data + end)

    def write(self, key: str, offset: int, values: np.ndarray) -> None:
        """Put values (rows as they lie in the file) `offset` bytes into a tensor."""
        self._stream.seek(self._data + self._starts[key] + offset)
        self._stream.write(as_bytes(values))

    def flush(self) -> None:
        """Hand what was written over to the system, which keeps it if this process is killed."""
        self._stream.flush()
