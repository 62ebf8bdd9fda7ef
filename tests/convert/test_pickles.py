"""Pickled weights: tensors alone come out of them, and nothing in them is run."""

import importlib.util
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.weights.tensor_files import read_folder

torch = pytest.importorskip("torch")


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def a_list() -> bytes:
    stream = io.BytesIO()
    torch.save([1, 2], stream)
    return stream.getvalue()


@pytest.fixture
def pickled(source: Path, tmp_path: Path) -> Path:
    """The tiny model as two pickles."""
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    tensors = {
        key: torch.from_numpy(next(tensor.pieces())[1].astype(np.float32))
        for key, tensor in read_folder(source).items()
    }
    keys = sorted(tensors)
    for number, part in enumerate((keys[::2], keys[1::2]), start=1):
        state = {key: tensors[key] for key in part}
        torch.save(state, folder / f"pytorch_model-0000{number}-of-00002.bin")
    return folder


def test_pickles_are_imported_and_go_back_as_safetensors(
    pickled: Path, source: Path, tmp_path: Path
) -> None:
    import_folder(pickled, tmp_path / "ours", "bfloat16")
    assert verify(source, tmp_path / "ours").same, "the numbers of the safetensors"
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert verify(pickled, tmp_path / "back").same
    names = {path.name for path in (tmp_path / "back").iterdir()}
    assert "model-00001-of-00002.safetensors" in names
    assert "model.safetensors.index.json" in names
    assert not [name for name in names if name.endswith(".bin")]


@pytest.mark.usefixtures("pickles_opened_here")
def test_state_dict_in_a_dict_is_found(pickled: Path, tmp_path: Path) -> None:
    path = pickled / "pytorch_model-00001-of-00002.bin"
    torch.save({"epoch": 3, "state_dict": torch.load(path, weights_only=True)}, path)
    import_folder(pickled, tmp_path / "ours")
    assert verify(pickled, tmp_path / "ours").same


def test_code_in_a_pickle_is_refused_and_not_run(
    pickled: Path, tmp_path: Path, refuse: Callable[..., None]
) -> None:
    path = pickled / "pytorch_model-00001-of-00002.bin"
    state = torch.load(path, weights_only=True)
    trace = tmp_path / "it-ran"
    torch.save({**state, "evil": Malicious(trace)}, path)
    refuse((path.name, "found getattr in it", "safetensors"), "import", pickled)
    assert not trace.exists()
    path.write_bytes(pickle.dumps(Malicious(trace)))
    refuse((path.name, "expected tensors alone"), "import", pickled)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "pickle"), (b"not a pickle at all", "pickle"), (a_list(), "no dict")],
    ids=["empty", "text", "a list"],
)
def test_what_is_no_state_dict_is_refused(
    content: bytes, words: str, pickled: Path, refuse: Callable[..., None]
) -> None:
    path = pickled / "pytorch_model-00001-of-00002.bin"
    path.write_bytes(content)
    refuse((path.name, words), "import", pickled)


@pytest.mark.usefixtures("pickles_opened_here")
def test_key_in_two_pickles_is_refused(pickled: Path, refuse: Callable[..., None]) -> None:
    first = pickled / "pytorch_model-00001-of-00002.bin"
    (pickled / "more.bin").write_bytes(first.read_bytes())
    refuse(("it in two files", "remove one"), "import", pickled)


@pytest.mark.usefixtures("pickles_opened_here")
def test_files_of_a_trainer_are_no_weights(pickled: Path, tmp_path: Path) -> None:
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state_0.pth"):
        (pickled / name).write_bytes(pickle.dumps(Malicious(tmp_path / "it-ran")))
    import_folder(pickled, tmp_path / "ours")
    assert verify(pickled, tmp_path / "ours").same
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.usefixtures("pickles_opened_here")
def test_projector_alone_asks_for_its_encoder(tmp_path: Path, refuse: Callable[..., None]) -> None:
    (tmp_path / "m3d").mkdir()
    keys = [
        f"model.mm_projector.projector.{i}.{part}" for i in (0, 2) for part in ("weight", "bias")
    ]
    state = {key: torch.zeros((4, 4) if key.endswith("weight") else (4,)) for key in keys}
    torch.save(state, tmp_path / "m3d" / "mm_projector.bin")
    refuse(
        ("found a projector alone", "put the encoder's file beside it"), "import", tmp_path / "m3d"
    )


def test_without_torch_a_pickle_is_refused(
    pickled: Path, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "tumorchain_jax.weights.pickles.find_spec",
        lambda name: None if name == "torch" else find_spec(name),
    )
    refuse(("no torch here", "tumorchain-jax[torch]"), "import", pickled)
