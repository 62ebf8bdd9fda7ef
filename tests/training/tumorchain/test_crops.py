"""A model with crops from its data set to its answers: trained, resumed, exported, asked."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.convert.format import Options
from tumorchain_jax.convert.tumorchain import export_tumorchain, import_tumorchain
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import read_manifest
from tumorchain_jax.data.pipeline import ExampleSource
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.models.tumorchain.crops import CropConfig
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.reasoning.interleaved import encode, reason
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.tumorchain.dataset import layout_of
from tumorchain_jax.weights.model_folder import load_model

pytestmark = pytest.mark.system(haste=True)
NANO = Path(__file__).parents[3] / "configs" / "nano.py"
CROP = CropConfig(("liver", "lungs"), spacing_mm=3.0, candidates=6)
GRID = (8, 16, 16)


@pytest.fixture(scope="module")
def lens(tiny: TumorChainConfig) -> TumorChainConfig:
    return replace(tiny, roi_source="crop", roi_rank="evidence", crop=CROP)


@pytest.fixture(scope="module")
def cropped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six digital patients with their crops."""
    folder = tmp_path_factory.mktemp("cropped")
    write_phantoms(folder, 0, 6, PreprocessConfig(GRID), 512, 1, crops=CROP)
    return folder


@pytest.fixture(scope="module")
def config(lens: TumorChainConfig, cropped: Path) -> ConfigDict:
    config = runpy.run_path(str(NANO))["get_config"]()
    changes = {
        "model": lens,
        "data.folder": str(cropped),
        "data.phantoms": 6,
        "data.first_seed": 0,
        "data.length": 800,
        "pretrain.patch_stage.steps": 2,
        "pretrain.patch_stage.patches_per_batch": 16,
        "pretrain.scan_stage.steps": 2,
        "pretrain.scan_stage.scans": 2,
        "steps": 3,
        "optimizer": "adamw",  # takes less time to compile
        "batch_size": 2,
        "log_every": 1,
        "checkpoint.every": 1,
    }
    with config.unlocked():
        config.update_from_flattened_dict(changes)
    return config


def with_crop(config: ConfigDict, **changes: Any) -> ConfigDict:
    """The configuration with fields of `model.crop` changed."""
    config = config.copy_and_resolve_references()
    crop = replace(CROP, **changes)
    with config.unlocked():
        config.model = replace(config.model, crop=crop)
    return config


@pytest.fixture(scope="module")
def run(config: ConfigDict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("run")
    train(config, workdir)
    return workdir


def test_rows_refer_to_slots_and_bring_the_crops(config: ConfigDict, cropped: Path) -> None:
    layout = layout_of(config)
    example = ExampleSource(cropped, layout)[0]
    assert example["crops"].shape == (2, *GRID)
    assert example["crop_world"].shape == (2, 7)
    assert example["roi_index"].shape == (57, layout.roi.candidates)
    looks = example["visual_index"][example["visual_index"] >= layout.roi.global_tokens]
    assert looks.size
    assert (looks >= layout.roi.visual_tokens).all()


def test_training_with_crops_learns_and_exports_their_embedding(
    run: Path, config: ConfigDict
) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[-1]["loss"] < lines[0]["loss"]
    exported = load_model(run / "export")
    assert exported.model == config.model
    for name in ("region", "place/kernel"):
        assert np.asarray(exported.params[f"crop_embedding/{name}"]).any()


def test_resume_with_another_crop_is_refused_in_one_line(run: Path, config: ConfigDict) -> None:
    for changes, message in (
        ({"candidates": 5}, r"candidates: found 6, expected 5; .*name another workdir"),
        ({"candidate_margin_mm": 0.0}, r"candidate_margin_mm: found 20\.0, expected 0\.0"),
        ({"spacing_mm": 4.0}, r"found .*'spacing_mm': 3\.0.* expected .*'spacing_mm': 4\.0"),
        ({"regions": ("liver",)}, r"found .*'lungs'.* expected .*\['liver'\]"),
    ):
        with pytest.raises(InputError, match=message) as error:
            train(with_crop(config, **changes), run)
        assert "\n" not in str(error.value)


def test_data_set_without_the_crops_is_refused_in_one_line(
    config: ConfigDict, phantoms: Path, tmp_path: Path
) -> None:
    config = config.copy_and_resolve_references()
    config.data.folder = str(phantoms)
    config.data.phantoms = 0
    with pytest.raises(InputError, match="preprocess: found") as error:
        train(config, tmp_path)
    assert "\n" not in str(error.value)
    assert "crops" not in read_manifest(phantoms)["preprocess"]


def test_export_to_pytorchs_parts_and_import_give_the_same_model(run: Path, tmp_path: Path) -> None:
    options = Options()
    export_tumorchain(run / "export", tmp_path / "theirs", options)
    assert (tmp_path / "theirs" / "crop_embedding.safetensors").is_file()
    import_tumorchain(tmp_path / "theirs", tmp_path / "ours", options)
    before, after = load_model(run / "export"), load_model(tmp_path / "ours")
    assert after.model == before.model
    assert after.params.keys() == before.params.keys()
    for path, leaf in before.params.items():
        np.testing.assert_array_equal(after.params[path], leaf, err_msg=path)


def test_answers_of_all_cases_come_from_one_compiled_program(run: Path) -> None:
    patient, other = make_patient(2), make_patient(4)
    ids = [TOTALSEGMENTATOR.index("liver")]
    voxels = np.where(np.isin(patient.labels.voxels, ids), 0, patient.labels.voxels)
    analyzer = Analyzer.load(run / "export")
    cases = [
        analyzer.prepare(patient.ct, patient.labels),
        analyzer.prepare(patient.ct, Volume(voxels, patient.labels.affine)),
        analyzer.prepare(other.ct, other.labels),
    ]
    first = analyzer.batch([(cases[0], "Is the liver normal?")])[0]
    programs = reason._cache_size(), encode._cache_size()
    reports = [analyzer.batch([(case, "Is the liver normal?")])[0] for case in cases]
    assert (reason._cache_size(), encode._cache_size()) == programs
    assert reports[0].trace == first.trace
    assert [set(report.crops) for report in reports] == [{0, 1}, {1}, {0, 1}]
    crop = reports[0].crops[0]
    assert crop.name == "liver"
    assert crop.image.shape == GRID
    assert "liver" in json.dumps(reports[0].to_dict())
    assert reports[0]._repr_html_()
