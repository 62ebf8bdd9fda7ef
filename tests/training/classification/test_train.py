"""The task `classification`: devices, initial weights, resume, what it exports and refuses."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch
from bus_pictures import write_pictures
from safetensors.numpy import load_file, save_file

from tumorchain_jax.bench.timm_models import import_timm
from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.training.classification.init import start
from tumorchain_jax.training.classification.program import build_program
from tumorchain_jax.training.registry import train
from tumorchain_jax.weights.classifier_folder import load_classifier

pytestmark = pytest.mark.program
FEWEST = ("--config.model.blocks=(1,)", "--config.model.width=4")
SCRIPT = Path(__file__).with_name("tiny_classifier.py")
TINY = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
MESHES: list[tuple[str, dict[str, int]]] = [
    ("resnet", {"data": 4, "fsdp": 2}),
    ("vit", {"data": 2, "fsdp": 2, "tensor": 2}),
]
RUNNING = ("running_mean", "running_var")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bus")
    write_pictures(root / "busbra")
    assert main(["bus", "prepare", "-i", f"{root}/busbra", "-o", f"{root}/data"]) == 0
    return root / "data"


def losses(workdir: Path) -> list[float]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def run_on(devices: int, data: Path, folder: Path, runs: list[tuple[str, dict]]) -> None:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(data), str(folder), str(devices), json.dumps(runs)],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.system(haste=True)
def test_eight_devices_give_the_losses_and_statistics_of_one(data: Path, tmp_path: Path) -> None:
    """Batches of eight: a device of the first mesh has one picture, and normalizes by all eight."""
    run_on(1, data, tmp_path / "one", [("resnet", {}), ("vit", {})])
    run_on(8, data, tmp_path / "eight", MESHES)
    models = ("resnet", "vit")
    for number, (model, _) in enumerate(MESHES):
        one, eight = tmp_path / "one" / str(models.index(model)), tmp_path / "eight" / str(number)
        assert len(losses(one)) == 3
        assert losses(eight) == pytest.approx(losses(one), rel=2e-5)
        ours, theirs = (load_file(each / "export" / "model.safetensors") for each in (eight, one))
        assert any(path.endswith(RUNNING) for path in ours) == (model == "resnet")
        for path in (path for path in ours if path.endswith(RUNNING)):
            np.testing.assert_allclose(ours[path], theirs[path], rtol=1e-4, atol=1e-6)


def timm_folder(folder: Path, classes: int) -> dict[str, np.ndarray]:
    """A ResNet as timm writes it, its image of three channels, 16 times narrower; its tensors."""
    args = {"layers": (1, 1, 1, 1)}
    with torch.device("meta"):
        model = import_timm().create_model("resnet50", num_classes=classes, **args)
    rng = np.random.default_rng(classes)
    tensors = {}
    for key, tensor in model.state_dict().items():
        shape = [
            side if side in (3, 7, classes) or side < 16 else side // 16 for side in tensor.shape
        ]
        dtype = str(tensor.dtype).removeprefix("torch.")
        tensors[key] = np.array(1 + rng.random(shape), dtype)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    fields: dict[str, Any] = {"architecture": "resnet50", "num_classes": classes}
    fields |= {"global_pool": "avg", "model_args": args}
    (folder / "config.json").write_text(json.dumps(fields))
    return tensors


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """ResNets of 1000 and of 2 classes, imported: `whole`, `two`, and `bare` without its head."""
    root = tmp_path_factory.mktemp("timm")
    tensors = timm_folder(root / "timm", 1000)
    convert("import", root / "timm", root / "whole")
    convert("import", root / "timm", root / "bare", drop_head=True)
    two = timm_folder(root / "timm_two", 2)
    convert("import", root / "timm_two", root / "two")
    return root, {"bare": tensors, "two": two}


def from_init(data: Path, folder: Path) -> Any:
    config = TINY.tiny(data, data.parent / "cache")
    config.model, config.init = ResNetConfig((1, 1, 1, 1), width=4, classes=2), str(folder)
    mesh = make_mesh({}, jax.devices()[:1])
    return start(config, build_program(config, mesh))


@pytest.mark.parametrize("name", ["two", "bare"])
def test_training_starts_from_an_imported_model(
    data: Path, published: tuple[Path, dict[str, Any]], name: str
) -> None:
    root, tensors = published
    state = from_init(data, root / name)
    theirs = tensors[name]
    found = state.params["classifier/conv1/kernel"]
    np.testing.assert_array_equal(found, theirs["conv1.weight"].transpose(2, 3, 1, 0))
    for ours in RUNNING:
        np.testing.assert_array_equal(
            state.statistics[f"classifier/bn1/{ours}"], theirs[f"bn1.{ours}"]
        )
    head = np.asarray(state.params["classifier/head/kernel"])
    assert head.shape == (128, 2)
    assert np.array_equal(head, theirs["fc.weight"].T) == (name == "two")
    assert head.std() > 0


def test_head_of_a_thousand_classes_is_refused(
    data: Path, published: tuple[Path, dict[str, Any]]
) -> None:
    with pytest.raises(InputError, match=r"head.*\n?.*--drop-head"):
        from_init(data, published[0] / "whole")


@pytest.mark.system(haste=True)
def test_stopped_run_goes_on_with_the_same_numbers(data: Path, tmp_path: Path) -> None:
    """Through the command: four steps at once, or the last two from a checkpoint."""
    words = ["train", "--config", "bus_nano_resnet", f"--config.data.folder={data}"]
    words += [
        f"--config.data.cache={tmp_path}/cache",
        *TINY.LESS,
        *FEWEST,
    ]
    words += ["--config.steps=4", "--config.checkpoint.every=2"]
    for name in ("whole", "stopped"):
        assert main([*words, "--workdir", f"{tmp_path}/{name}"]) == 0
    stopped = tmp_path / "stopped"
    (newest,) = [each for each in (stopped / "checkpoints").iterdir() if each.name == "4"]
    shutil.rmtree(newest)
    shutil.rmtree(stopped / "export")
    assert main([*words, "--workdir", str(stopped)]) == 0
    for one, other in zip(losses(tmp_path / "whole"), losses(stopped)[-4:], strict=True):
        assert one == other
    whole, again = (
        load_classifier(tmp_path / name / "export").arrays for name in ("whole", "stopped")
    )
    assert whole.keys() == again.keys()
    assert all(whole[path].tobytes() == again[path].tobytes() for path in whole)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("data.folder", "", "data.folder"),
        ("data.held_out", "nowhere", "data.held_out"),
        ("data.sources", "busi", "data.sources"),
        ("data.fold", 2, "data.fold"),
        ("data.held_out", "bus-bra", "pictures of one class or none"),
        ("data.view", "inside", "view"),
        ("model.classes", 3, "model.classes"),
        ("data.style", "cubist", "data.style"),
        ("mask_weight", 1.0, "mask_weight"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    field: str,
    value: object,
    said: str,
) -> None:
    words = ["train", "--config", "bus_nano_resnet", f"--config.data.folder={data}"]
    words += [*TINY.LESS, *FEWEST, f"--config.{field}={value}", "--workdir", f"{tmp_path}/run"]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_batch_that_the_devices_cannot_share_is_refused(data: Path, tmp_path: Path) -> None:
    config = TINY.tiny(data, tmp_path / "cache")
    config.batch_size = 0
    with pytest.raises(InputError, match="batch_size"):
        train(config, tmp_path / "run")
