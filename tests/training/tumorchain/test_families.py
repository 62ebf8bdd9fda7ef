"""Training, export and analysis with another encoder and decoder: Merlin's ResNet and Qwen3."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.models.language.qwen3.model import Qwen3Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.resnet3d.model import ResNet3DConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.registry import train
from tumorchain_jax.weights.model_folder import load_model

pytestmark = pytest.mark.system(haste=True)
NANO = Path(__file__).parents[3] / "configs" / "nano.py"
IMAGE, WINDOW = (32, 64, 64), {"level": 0.0, "width": 2000.0}  # HU as Merlin scales them
STEPS = 3


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ConfigDict:
    folder = tmp_path_factory.mktemp("data")
    write_phantoms(folder, 0, 6, PreprocessConfig(IMAGE, **WINDOW), 512, processes=1)
    model = TumorChainConfig(
        ResNet3DConfig(IMAGE, (1, 2, 1, 1), 4),
        Qwen3Config(512, 16, 32, 2, 2, 1, 16, True),
        roi_slots=4,
    )
    config = runpy.run_path(str(NANO))["get_config"]()
    changes: dict[str, Any] = {
        "model": model,
        "window": ConfigDict(WINDOW),
        "data.folder": str(folder),
        "data.phantoms": 0,
        "data.length": 900,
        "pretrain.patch_stage.steps": 0,
        "optimizer": "adamw",
        "weight_decay": 0.1,  # nothing of a statistic may decay
        "steps": STEPS,
        "batch_size": 2,
        "log_every": 1,
        "remat": "full",
        "trainable": ((".*", True),),
    }
    with config.unlocked():
        config.update_from_flattened_dict(changes)
    return config


@pytest.fixture(scope="module")
def workdir(config: ConfigDict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("run")
    train(config, workdir)
    return workdir


def test_train_of_other_families_learns_and_exports(workdir: Path, config: ConfigDict) -> None:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[-1]["loss"] < lines[0]["loss"]
    exported = load_model(workdir / "export")
    assert exported.model == config.model
    families = json.loads((workdir / "export" / "config.json").read_text())["model"]
    assert (families["encoder"]["family"], families["decoder"]["family"]) == ("merlin", "qwen3")
    for path, values in exported.params.items():
        if path.endswith("running_mean"):
            assert not values.any(), path
        if path.endswith("running_var"):
            assert (values == 1).all(), path
    scales = [x for path, x in exported.params.items() if path.endswith("bn3/scale")]
    assert scales
    assert all(values.any() for values in scales), "what is trained did change"


def test_analysis_with_other_families_writes_a_report(workdir: Path) -> None:
    patient = make_patient(2)
    analyzer = Analyzer(load_model(workdir / "export"), max_rounds=2)
    [report] = analyzer.batch([(analyzer.prepare(patient.ct, patient.labels), "Is it ill?")])
    assert report.trace.rounds
    assert report.trace.rounds[0].tokens_in > 0


def test_export_of_other_families_comes_back_byte_by_byte(workdir: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import transformers
    from safetensors.numpy import load_file

    ours, theirs, back = workdir / "export", tmp_path / "theirs", tmp_path / "back"
    convert("export", ours, theirs, None, None, None)
    assert convert("verify", ours, theirs, None, None, None)["same"]
    convert("import", theirs, back, None, None, None)
    for path in ours.iterdir():
        assert (back / path.name).read_bytes() == path.read_bytes(), path.name
    encoder = load_file(theirs / "encoder.safetensors")
    assert encoder["layer2.0.downsample.1.running_var"].shape == (32,)
    assert encoder["layer2.1.conv2.weight"].shape == (8, 8, 3, 3, 3)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        theirs / "language_model", output_loading_info=True
    )
    assert type(model) is transformers.Qwen3ForCausalLM
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_cell_tags_without_patches_are_refused(config: ConfigDict, tmp_path: Path) -> None:
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.pretrain.patch_stage.steps = 1
    with pytest.raises(InputError, match="ResNet3DConfig"):
        train(config, tmp_path / "run")
    assert np.size([*(tmp_path / "run").glob("export")]) == 0
