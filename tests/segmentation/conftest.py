"""Models so small that tests make their own; a tiny plan of nnU-Net in both formats."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.segmentation.model_folder import SegmentationModel
from tumorchain_jax.segmentation.plans import Intensity, Plan, Resampling, Spline

NETWORK = (
    "PlainConvUNet",
    [4, 6, 6],
    [[1, 1, 1], [1, 2, 2], [2, 2, 2]],
    [[1, 3, 3], [3, 3, 3], [3, 3, 3]],
    [1, 2, 1],
    [2, 1],
)
INTENSITY = {"mean": 80.5, "std": 40.25, "percentile_00_5": -160.0, "percentile_99_5": 300.0}


def tiny_plans(nnunet_plans: SimpleNamespace, network: dict[str, Any]) -> dict[str, Any]:
    plans = nnunet_plans.make(
        network,
        dataset_name="Dataset001_Tiny",
        original_median_spacing_after_transp=[3.0, 0.8, 0.7],
        original_median_shape_after_transp=[20, 64, 64],
        transpose_forward=[2, 0, 1],
        transpose_backward=[1, 2, 0],
        foreground_intensity_properties_per_channel={
            "0": {**INTENSITY, "median": 85.0, "min": -1024.0, "max": 3000.0}
        },
        patch_size=[8, 16, 16],
        median_image_size_in_voxels=[20.0, 64.0, 64.0],
        spacing=[3.0, 0.8, 0.7],
    )
    plans["configurations"] |= {
        "2d": {"patch_size": [16, 16], "spacing": [0.8, 0.7]},
        "3d_large": {"inherits_from": "3d_fullres", "patch_size": [16, 32, 32]},
        "3d_larger": {"inherits_from": "3d_large", "batch_size": 4},
        "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"},
    }
    # A test may change what it gets.
    return json.loads(json.dumps(plans))


@pytest.fixture
def plans(nnunet_plans: SimpleNamespace) -> dict[str, Any]:
    """In today's format."""
    return tiny_plans(nnunet_plans, nnunet_plans.new(*NETWORK))


@pytest.fixture
def old_plans(nnunet_plans: SimpleNamespace) -> dict[str, Any]:
    """As TotalSegmentator's are."""
    return tiny_plans(nnunet_plans, nnunet_plans.old(*NETWORK))


@pytest.fixture
def dataset() -> dict[str, Any]:
    return {
        "channel_names": {"0": "CT"},
        "labels": {"background": 0, "liver": 2, "spleen": 1},
        "numTraining": 3,
        "file_ending": ".nii.gz",
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict, dict], Path]:
    """Writes both files into a folder."""

    def files(plans: dict, dataset: dict) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "plans.json").write_text(json.dumps(plans))
        (folder / "dataset.json").write_text(json.dumps(dataset))
        return folder

    return files


# ---------------------------------------------------------------- without files


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    """For CT: tiles of 8 x 16 x 16 voxels of 2 mm, three classes, three convolutions."""
    strides, kernels = ((1, 1, 1), (2, 2, 2)), ((3, 3, 3), (3, 3, 3))
    return Plan(
        name="small",
        configuration="3d_fullres",
        network=UNet3DConfig(1, 3, (4, 8), strides, kernels, (1, 1), (1,)),
        patch_size=(8, 16, 16),
        spacing=(2.0, 2.0, 2.0),
        transpose_forward=(0, 1, 2),
        transpose_backward=(0, 1, 2),
        normalization=("CTNormalization",),
        use_mask_for_norm=(False,),
        intensities=(Intensity(40.0, 200.0, -500.0, 500.0),),
        resampling=Resampling(Spline(3, 0, None, 3.0), Spline(1, 0, None, 3.0)),
        labels={"background": 0, "liver": 1, "spleen": 2},
        plans_json={},
        dataset_json={},
        mirror_axes=(0, 1, 2),
    )


@pytest.fixture(scope="session")
def small_model(small_plan: Plan) -> Callable[..., SegmentationModel]:
    """Makes one of random weights, of one fold or two."""
    init, tile = jax.jit(UNet3D(small_plan.network).init), jnp.zeros((1, *small_plan.patch_size, 1))
    each = [nn.meta.unbox(init(jax.random.key(seed), tile))["params"] for seed in (4, 7)]

    def make(folds: int = 1) -> SegmentationModel:
        return SegmentationModel(small_plan, tuple(each[:folds]), "0" * 64, "small model")

    return make
