"""Folders of weights, and what flags mean."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation import factory
from tumorchain_jax.segmentation.factory import (
    NO_SEGMENTER,
    make_segmenter,
    read_segmenter,
    totalsegmentator_weights,
)
from tumorchain_jax.segmentation.model_folder import SegmentationModel, save_segmentation_model
from tumorchain_jax.segmentation.plans import read_plan
from tumorchain_jax.segmentation.total import FAST_MODEL, TOTAL_MODELS
from tumorchain_jax.weights.matching import module_shapes

TRAINER = "nnUNetTrainerNoMirroring__nnUNetPlans__3d_fullres"
WriteModel = Callable[..., Path]


@pytest.fixture
def write_model(old_plans: dict[str, Any], dataset: dict[str, Any], tmp_path: Path) -> WriteModel:
    """A folder of a tiny random network; without `weights` only of its plan."""

    def write(
        folder: Path, organs: Sequence[str], name: str = "Dataset001_Tiny", weights: bool = True
    ) -> Path:
        labels = {"background": 0, **{organ: i for i, organ in enumerate(organs, start=1)}}
        for_all = old_plans["configurations"]["3d_fullres"]
        for_all.update(spacing=[1.5, 1.5, 1.5], patch_size=[8, 16, 16])
        plan_folder = folder if not weights else tmp_path / "plan"
        plan_folder.mkdir(parents=True, exist_ok=True)
        (plan_folder / "plans.json").write_text(json.dumps({**old_plans, "dataset_name": name}))
        (plan_folder / "dataset.json").write_text(json.dumps({**dataset, "labels": labels}))
        if weights:
            plan = read_plan(plan_folder)
            rng, tile = np.random.default_rng(0), jnp.zeros((1, *plan.patch_size, 1))
            shapes = module_shapes(UNet3D(plan.network), tile)
            params = {path: rng.normal(0, 0.3, shape) for path, shape in shapes.items()}
            model = SegmentationModel(plan, (unflatten(params),), "", "random")
            save_segmentation_model(model, folder)
        return folder

    return write


def write_home(home: Path, write_model: WriteModel) -> Path:
    """TotalSegmentator's folder, without weights."""
    for number, ids in {**TOTAL_MODELS, FAST_MODEL: range(1, 118)}.items():
        name = f"Dataset{number}_TotalSegmentator_x_1559subj"
        write_model(home / name / TRAINER, [TOTALSEGMENTATOR[i] for i in ids], name, weights=False)
    return home


def test_one_model_finds_what_its_labels_are_called(
    write_model: WriteModel, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "mine", ["stomach", "aorta", "liver"], "Dataset077_Mine")
    segmenter = read_segmenter(folder)
    (part,) = segmenter.models
    assert part.ids == (0, 6, 52, 5)
    assert segmenter.organs == {"stomach", "aorta", "liver"}
    assert (segmenter.name, segmenter.spacing) == ("Dataset077_Mine", None)
    assert len(part.identity()) == 64


def test_total_is_five_parts_found_by_number(write_model: WriteModel, tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", write_model)
    segmenter = read_segmenter(home)
    assert [part.ids for part in segmenter.models] == [(0, *ids) for ids in TOTAL_MODELS.values()]
    assert [part.name[:10] for part in segmenter.models] == [f"Dataset{n}" for n in TOTAL_MODELS]
    assert (segmenter.spacing, segmenter.order) == (1.5, 1)
    fast = read_segmenter(home, fast=True, order=3)
    assert [part.ids for part in fast.models] == [tuple(range(118))]
    assert (fast.spacing, fast.order) == (3.0, 3)


def test_totals_models_run_as_totalsegmentator_runs_them(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    def predictor(model: SegmentationModel, **how: Any) -> Any:
        made.append((model.plan.name, how))
        return lambda scan: Volume(np.ones(scan.shape, np.uint8), scan.affine)

    monkeypatch.setattr(factory, "Predictor", predictor)
    home = write_home(tmp_path / "home", write_model)
    name = "Dataset297_TotalSegmentator_x_1559subj"
    shutil.rmtree(home / name / TRAINER)
    folder = write_model(home / name / TRAINER, TOTALSEGMENTATOR[1:], name)
    scan = Volume(np.zeros((9, 9, 9), np.float32), np.eye(4))
    halved = read_segmenter(folder, dtype="bfloat16")
    # What is kept of a scan is kept under the name.
    assert halved.name == f"{read_segmenter(folder).name} in bfloat16"
    for segmenter in (read_segmenter(home, fast=True), halved):
        for _ in range(2):
            assert (segmenter(scan).voxels == 1).all()
    assert made == [
        (name, {"dtype": "float32", "step": 0.8, "mirror": False}),
        (name, {"dtype": "bfloat16"}),
    ]


@pytest.mark.parametrize(
    ("organs", "found"),
    [
        (["liver", "heart_myocardium"], "'heart_myocardium', expected names of TotalSegmentator"),
        (["sacrum", "vertebrae_L6"], "'vertebrae_L6'"),
        (["Liver"], "'Liver'"),
    ],
)
def test_other_labels_are_refused_by_name(
    organs: list[str], found: str, write_model: WriteModel, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "mine", organs, weights=False)
    with pytest.raises(InputError, match=r"mine/dataset\.json: labels: found") as refused:
        read_segmenter(folder)
    assert found in str(refused.value)


def test_home_that_is_not_whole(write_model: WriteModel, tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", write_model)
    (home / "Dataset293_TotalSegmentator_x_1559subj").rename(home / "Dataset993")
    with pytest.raises(InputError, match=r"Dataset293_\*: found 0 models, expected one"):
        read_segmenter(home)
    read_segmenter(home, fast=True)
    with pytest.raises(InputError, match="no such folder"):
        read_segmenter(tmp_path / "nowhere")
    name = "Dataset293_of_another_version"
    write_model(home / name / TRAINER, ["aorta", "heart"], name, weights=False)
    with pytest.raises(
        InputError, match="labels: found others, expected heart to iliac_vena_right"
    ):
        read_segmenter(home)


def test_what_flags_mean(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOTALSEG_WEIGHTS_PATH", raising=False)
    monkeypatch.setenv("TOTALSEG_HOME_DIR", str(tmp_path / "ts"))
    assert totalsegmentator_weights() == tmp_path / "ts" / "nnunet" / "results"
    write_home(totalsegmentator_weights(), write_model)
    assert len(make_segmenter(weights="").models) == 5
    assert len(make_segmenter(weights="", fast=True).models) == 1
    assert make_segmenter("none") is NO_SEGMENTER
    with pytest.raises(InputError, match="--weights: found --segmenter none"):
        make_segmenter("none", "x")
    with pytest.raises(InputError, match="--segmenter-dtype: found --segmenter totalsegmentator"):
        make_segmenter("totalsegmentator", dtype="bfloat16")
    with pytest.raises(InputError, match="--fast: found --segmenter none"):
        make_segmenter("none", fast=True)
    with pytest.raises(InputError, match="--fast: found no weights"):
        make_segmenter(fast=True)
    one = write_model(tmp_path / "one", ["liver"], weights=False)
    with pytest.raises(InputError, match="--fast: found one model"):
        make_segmenter(weights=one, fast=True)
    monkeypatch.setenv("TOTALSEG_WEIGHTS_PATH", str(tmp_path / "w"))
    assert totalsegmentator_weights() == tmp_path / "w"


def test_command_with_a_folder_of_weights(
    write_model: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A scan of another orientation and spacing through a real network, and back."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_model(tmp_path / "mine", ["stomach", "aorta", "liver"])
    rng = np.random.default_rng(0)
    hu = rng.normal(0, 300, (24, 20, 12)).astype(np.int16)
    affine = np.array([[0, -2, 0, 30], [1.8, 0, 0, 5], [0, 0, -2.5, 90], [0, 0, 0, 1.0]])
    nib.save(nib.Nifti1Image(hu, affine), tmp_path / "ct.nii.gz")
    words = ["segment", "-i", str(tmp_path / "ct.nii.gz"), "--weights", str(folder), "--json"]
    words.append("--force")  # it is noise
    assert main([*words, "-o", str(tmp_path / "seg.nii.gz"), "-s"]) == 0
    facts = json.loads(capsys.readouterr().out)
    image = nib.load(tmp_path / "seg.nii.gz")
    labels = np.asarray(image.dataobj)
    assert image.get_data_dtype() == np.uint8
    np.testing.assert_allclose(image.affine, affine)
    assert labels.shape == hu.shape
    present = [TOTALSEGMENTATOR[i] for i in np.unique(labels) if i]
    assert facts["found"] == present
    assert set(present) <= {"stomach", "aorta", "liver"}
    assert len(present) > 1
    assert list(facts["weights"]) == ["Dataset001_Tiny"]
    assert main([*words, "-o", str(tmp_path / "aorta.nii.gz"), "-rs", "aorta"]) == 0
    aorta = np.asarray(nib.load(tmp_path / "aorta.nii.gz").dataobj)
    np.testing.assert_array_equal(aorta, np.where(labels == 52, 52, 0))
