"""Models so small that tests make their own; a tiny plan of nnU-Net in both formats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.segmentation.model_folder import SegmentationModel
from tumorchain_jax.segmentation.plans import Intensity, Plan, Resampling, Spline

RESAMPLING = {"is_seg": False, "order_z": 0, "force_separate_z": None}
STRIDES = [[1, 1, 1], [1, 2, 2], [2, 2, 2]]
KERNELS = [[1, 3, 3], [3, 3, 3], [3, 3, 3]]
MODULES = "dynamic_network_architectures.architectures"
OLD = {
    "UNet_class_name": "PlainConvUNet",
    "UNet_base_num_features": 4,
    "unet_max_num_features": 6,
    "n_conv_per_stage_encoder": [1, 2, 1],
    "n_conv_per_stage_decoder": [2, 1],
    "num_pool_per_axis": [1, 2, 2],
    "pool_op_kernel_sizes": STRIDES,
    "conv_kernel_sizes": KERNELS,
}
NEW = {
    "architecture": {
        "network_class_name": f"{MODULES}.unet.PlainConvUNet",
        "arch_kwargs": {
            "n_stages": 3,
            "features_per_stage": [4, 6, 6],
            "conv_op": "torch.nn.modules.conv.Conv3d",
            "kernel_sizes": KERNELS,
            "strides": STRIDES,
            "n_conv_per_stage": [1, 2, 1],
            "n_conv_per_stage_decoder": [2, 1],
            "conv_bias": True,
            "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
            "norm_op_kwargs": {"eps": 1e-05, "affine": True},
            "dropout_op": None,
            "dropout_op_kwargs": None,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }
}
INTENSITY = {"mean": 80.5, "std": 40.25, "percentile_00_5": -160.0, "percentile_99_5": 300.0}


def tiny_plans(network: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset_name": "Dataset001_Tiny",
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": [3.0, 0.8, 0.7],
        "original_median_shape_after_transp": [20, 64, 64],
        "image_reader_writer": "SimpleITKIO",
        "transpose_forward": [2, 0, 1],
        "transpose_backward": [1, 2, 0],
        "experiment_planner_used": "ExperimentPlanner",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {
            "0": {**INTENSITY, "median": 85.0, "min": -1024.0, "max": 3000.0}
        },
        "configurations": {
            "2d": {"patch_size": [16, 16], "spacing": [0.8, 0.7]},
            "3d_fullres": {
                "data_identifier": "nnUNetPlans_3d_fullres",
                "preprocessor_name": "DefaultPreprocessor",
                "batch_size": 2,
                "patch_size": [8, 16, 16],
                "median_image_size_in_voxels": [20.0, 64.0, 64.0],
                "spacing": [3.0, 0.8, 0.7],
                "normalization_schemes": ["CTNormalization"],
                "use_mask_for_norm": [False],
                "resampling_fn_data": "resample_data_or_seg_to_shape",
                "resampling_fn_seg": "resample_data_or_seg_to_shape",
                "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
                "resampling_fn_data_kwargs": {**RESAMPLING, "order": 3},
                "resampling_fn_seg_kwargs": {**RESAMPLING, "is_seg": True, "order": 1},
                "resampling_fn_probabilities_kwargs": {**RESAMPLING, "order": 1},
                "batch_dice": True,
                **network,
            },
            "3d_large": {"inherits_from": "3d_fullres", "patch_size": [16, 32, 32]},
            "3d_larger": {"inherits_from": "3d_large", "batch_size": 4},
            "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"},
        },
    }


@pytest.fixture
def plans() -> dict[str, Any]:
    """In today's format."""
    return json.loads(json.dumps(tiny_plans(NEW)))


@pytest.fixture
def old_plans() -> dict[str, Any]:
    """As TotalSegmentator's are."""
    return json.loads(json.dumps(tiny_plans(OLD)))


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
