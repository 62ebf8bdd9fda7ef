import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.weights import tensor_files
from tumorchain_jax.weights.tensor_files import (
    DTYPES,
    MAX_HEADER,
    Tensor,
    TensorWriter,
    cut,
    read_file,
    read_folder,
)

SHAPES = [(), (1,), (7,), (4, 3), (6, 1, 5), (0, 3), (3, 0)]
INDEX = "model.safetensors.index.json"
A, B = "model-a.safetensors", "model-b.safetensors"
ONE = np.ones(3, np.float32)


def examples(dtype: np.dtype) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"a{shape}": rng.uniform(0, 100, shape).astype(dtype) for shape in SHAPES}


def whole(tensor: Tensor) -> np.ndarray:
    pieces = [values for _, values in tensor.pieces()]
    return np.concatenate(pieces) if tensor.shape else pieces[0]


def fields(start: int, stop: int, **changes: Any) -> dict[str, Any]:
    """What a header says of a vector."""
    shape = [(stop - start) // 4]
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, stop], **changes}


def write_index(folder: Path, where: object) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))


def refused(read: Callable[[Path], object], path: Path, *words: str) -> None:
    with pytest.raises(InputError) as error:
        read(path)
    line = str(error.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    for word in words:
        assert word in line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", DTYPES)
def test_file_comes_back_bit_for_bit(name: str, path: Path, save: Callable) -> None:
    written = examples(DTYPES[name])
    save(path, written)
    found = read_file(path)
    assert [*found] == [*written]
    for key, values in written.items():
        assert (found[key].dtype, found[key].shape) == (values.dtype, values.shape)
        assert found[key].nbytes == values.nbytes
        assert whole(found[key]).tobytes() == values.tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_reference_reader_finds_the_same(name: str, path: Path, save: Callable) -> None:
    written = examples(DTYPES[name])
    save(path, written)
    found = dict(safetensors.deserialize(path.read_bytes()))
    assert found.keys() == written.keys()
    for key, values in written.items():
        assert (found[key]["dtype"], tuple(found[key]["shape"])) == (name, values.shape)
        assert bytes(found[key]["data"]) == values.tobytes()


@pytest.mark.parametrize("name", sorted({*DTYPES} - {"BF16"}))
def test_file_of_the_reference_writer_is_read(name: str, path: Path) -> None:
    written = examples(DTYPES[name])
    save_file(written, path, {"made by": "another"})
    found = read_file(path)
    assert found.keys() == written.keys()
    for key, values in written.items():
        np.testing.assert_array_equal(whole(found[key]), values)


def test_header_names_the_framework(path: Path) -> None:
    for made_by in ("pt", "np"):
        with path.open("wb") as stream:
            TensorWriter(stream, {"a": (ONE.dtype, (0,))}, made_by)
        with safetensors.safe_open(path, "np") as file:
            assert file.metadata() == {"format": made_by}


def test_tensor_is_filled_in_piece_by_piece_in_any_order(path: Path) -> None:
    values = np.arange(12, dtype=np.int32).reshape(4, 3)
    with path.open("wb") as stream:
        specs = {"a": (values.dtype, (4, 3)), "b": (values.dtype, (4, 3))}
        writer = TensorWriter(stream, specs)
        for row in (3, 0, 2, 1):
            writer.write("b", row * 12, values[row])
    found = read_file(path)
    np.testing.assert_array_equal(whole(found["b"]), values)
    np.testing.assert_array_equal(whole(found["a"]), np.zeros_like(values))


# ---------------------------------------------------------------- pieces


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("piece", [1, 5, 7, 9, 1000])
def test_pieces_are_small_and_cover_each_row_once(
    shape: tuple[int, ...],
    piece: int,
    path: Path,
    save: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    save(path, {"before": ONE, "a": values, "after": ONE})
    monkeypatch.setattr(tensor_files, "PIECE", piece)
    slices = cut(shape)
    rows = [row for each in slices for row in range(each.start, each.stop)]
    assert rows == [*range(shape[0] if shape else 1)]
    # Of one size but for the last, as the chunks of an array are.
    assert len({each.stop - each.start for each in slices[:-1]}) <= 1
    pieces = [*read_file(path)["a"].pieces()]
    assert [each for each, _ in pieces] == slices
    for each, found in pieces:
        assert found.size <= piece or each.stop - each.start == 1
        np.testing.assert_array_equal(found, values[each] if shape else values)


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((6,), 1),
        ((7,), 2),
        ((13,), 3),
        ((12,), 2),
        ((4, 3), 2),
        ((2, 7), 2),
        ((3, 50), 3),
        ((0, 9), 1),
    ],
)
def test_pieces_are_as_few_as_can_be(
    shape: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "PIECE", 6)
    assert len(cut(shape)) == count


# ---------------------------------------------------------------- folders


def test_folder_of_several_files_is_read_by_its_index(tmp_path: Path, save: Callable) -> None:
    save(tmp_path / A, {"x": ONE, "y": 2 * ONE})
    save(tmp_path / B, {"z": 3 * ONE})
    save(tmp_path / "model.safetensors", {"left over": ONE})
    write_index(tmp_path, {"z": B, "x": A, "y": A})
    found = read_folder(tmp_path)
    assert {key: (t.file.name, whole(t)[0]) for key, t in found.items()} == {
        "x": (A, 1),
        "y": (A, 2),
        "z": (B, 3),
    }


def test_folder_may_have_one_file_of_another_name(tmp_path: Path, save: Callable) -> None:
    save(tmp_path / "adapter_model.safetensors", {"x": ONE})
    assert [*read_folder(tmp_path, "adapter_model")] == ["x"]
    refused(read_folder, tmp_path, "neither", "model.safetensors or", INDEX)


BAD_INDEXES = {
    "missing file": ({"x": A, "y": "model-c.safetensors"}, ("model-c.safetensors", "no such file")),
    "path outside": ({"x": A, "y": "../outside.safetensors"}, ("'../outside.safetensors'",)),
    "key in another file": ({"x": A, "y": A, "z": B}, (INDEX, "y: found it in", B)),
    "key left out": ({"x": A, "z": B}, (INDEX, "y: found it in", B, "no such key")),
    "key too many": ({"x": A, "y": B, "z": B, "w": B}, (B, "w: found no such key")),
    "nothing": ({}, (INDEX, "weight_map")),
    "a list": ([A, B], (INDEX, "weight_map")),
    "a number": ({"x": 3}, (INDEX, "weight_map")),
}


@pytest.mark.parametrize(("where", "words"), BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_index_that_does_not_fit_its_files_is_refused(
    where: object, words: tuple[str, ...], tmp_path: Path, save: Callable
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    save(tmp_path / "outside.safetensors", {"y": ONE})
    save(folder / A, {"x": ONE})
    save(folder / B, {"y": ONE, "z": ONE})
    write_index(folder, where)
    refused(read_folder, folder, *words)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metadata": {}}', "\udcff"])
def test_index_that_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(text, errors="surrogateescape")
    refused(read_folder, tmp_path, INDEX, "weight_map", "none that can be read")


# ---------------------------------------------------------------- bad files

BAD_HEADERS: dict[str, tuple[object, int, tuple[str, ...]]] = {
    "no JSON": (b"{a", 0, ("header",)),
    "no text": (b"\xff\xfe\xfd", 0, ("header",)),
    "a list": ([], 0, ("header",)),
    "a number": ({"a": 3}, 0, ("header",)),
    "no dtype": ({"a": {"shape": [1], "data_offsets": [0, 4]}}, 4, ("header", "dtype")),
    "one offset": ({"a": fields(0, 4, data_offsets=[0])}, 4, ("header",)),
    "a fraction": ({"a": fields(0, 4, data_offsets=[0, 4.0])}, 4, ("header", "a: ")),
    "below zero": ({"a": fields(0, 4, shape=[-1, -1])}, 4, ("header", "a: ")),
    "unknown dtype": ({"a": fields(0, 4, dtype="F8_E4M3")}, 4, ("a: dtype", "F8_E4M3", "BF16")),
    "other size": ({"a": fields(0, 8, shape=[3])}, 8, ("a: found 8 bytes", "12 for (3,) F32")),
    "smaller": ({"a": fields(0, 8, shape=[1])}, 8, ("a: found 8 bytes", "4 for (1,) F32")),
    "overlap": ({"a": fields(0, 8), "b": fields(4, 12)}, 12, ("b: found an overlap",)),
    "same place": ({"a": fields(0, 8), "b": fields(0, 8)}, 8, ("b: found an overlap",)),
    "gap": ({"b": fields(12, 20), "a": fields(0, 8)}, 20, ("b: found a gap",)),
    "gap in front": ({"a": fields(4, 8)}, 8, ("a: found a gap",)),
    "truncated": ({"a": fields(0, 8)}, 7, ("size",)),
    "bytes behind": ({"a": fields(0, 8)}, 9, ("size",)),
}


@pytest.mark.parametrize(("header", "size", "words"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_header_that_is_not_sound_is_refused(
    header: object, size: int, words: tuple[str, ...], path: Path
) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    refused(read_file, path, *words)


@pytest.mark.parametrize("keep", [0, 7, 8, 20, -1])
def test_truncated_file_is_refused(keep: int, path: Path, save: Callable) -> None:
    save(path, {"a": ONE})
    path.write_bytes(path.read_bytes()[:keep])
    refused(read_file, path, "size" if keep == -1 else "header", "bytes")


def test_header_of_absurd_length_is_refused_unread(path: Path) -> None:
    with path.open("wb") as stream:
        stream.write((MAX_HEADER + 1).to_bytes(8, "little"))
        stream.truncate(MAX_HEADER + 9)
    refused(read_file, path, "header", f"{MAX_HEADER + 1} bytes", f"at most {MAX_HEADER}")


def test_header_longer_than_its_file_is_refused(path: Path) -> None:
    path.write_bytes(bytes([255] * 8))
    refused(read_file, path, "header", "a file of 8 bytes")


def test_file_that_is_not_there_is_refused(path: Path) -> None:
    refused(read_file, path, "No such file")


@pytest.mark.parametrize("text", [b"[", b'{"a":'])
def test_header_nested_too_deep_is_refused(text: bytes, path: Path) -> None:
    text *= 100_000
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    refused(read_file, path, "header")
