"""Write nnU-Net's `plans.json` and `dataset.json` from a segmenter's configuration."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tumorchain_jax.core.files import write_file
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.segmentation.plans import (
    DATASET,
    PLAIN,
    PLANS,
    RESAMPLING,
    RESIDUAL,
    Intensity,
)

CONFIGURATION = "3d_fullres"


def write_plan(folder: Path, segmenter: ConfigDict, intensity: Intensity) -> None:
    """Write both files; `read_plan` reads them.

    Args:
        segmenter: `name`, `network`, `patch_size`, `spacing` and `labels`, see
            configs/nano_segmenter.py.
    """
    measured = {"max": intensity.percentile_99_5, "min": intensity.percentile_00_5}
    measured |= {"median": intensity.mean, **asdict(intensity)}
    plans = {
        "dataset_name": segmenter.name,
        "plans_name": "nnUNetPlans",
        "original_median_spacing_after_transp": segmenter.spacing,
        "original_median_shape_after_transp": segmenter.patch_size,
        # Digital patients lie in RAS+, and organs have a side: nnU-Net must reorient scans, too.
        "image_reader_writer": "NibabelIOWithReorient",
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "configurations": {CONFIGURATION: _configuration(segmenter)},
        "experiment_planner_used": "ExperimentPlanner",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {"0": measured},
    }
    dataset = {
        "name": segmenter.name,
        "description": "digital patients: everything is made up",
        "channel_names": {"0": "CT"},
        "labels": {name: value for value, name in enumerate(["background", *segmenter.labels])},
        "file_ending": ".nii.gz",
    }
    for name, values in ((PLANS, plans), (DATASET, dataset)):
        write_file(folder / name, json.dumps(values, indent=1).encode())


def _configuration(segmenter: ConfigDict) -> dict[str, Any]:
    spline = {"order_z": 0, "force_separate_z": None}
    resampling: dict[str, Any] = {}
    for what, order in (("data", 3), ("seg", 1), ("probabilities", 1)):
        resampling[f"resampling_fn_{what}"] = RESAMPLING
        kwargs = {"is_seg": what == "seg", "order": order, **spline}
        resampling[f"resampling_fn_{what}_kwargs"] = kwargs
    return {
        "data_identifier": f"nnUNetPlans_{CONFIGURATION}",
        "preprocessor_name": "DefaultPreprocessor",
        "batch_size": 2,
        "patch_size": segmenter.patch_size,
        "median_image_size_in_voxels": segmenter.patch_size,
        "spacing": segmenter.spacing,
        "normalization_schemes": ["CTNormalization"],
        "use_mask_for_norm": [False],
        "batch_dice": False,
        **resampling,
        "architecture": _architecture(segmenter.network),
    }


def _architecture(network: UNet3DConfig) -> dict[str, Any]:
    kind, blocks = (
        (RESIDUAL, "n_blocks_per_stage") if network.residual else (PLAIN, "n_conv_per_stage")
    )
    return {
        "network_class_name": f"dynamic_network_architectures.architectures.unet.{kind}",
        "arch_kwargs": {
            "n_stages": len(network.features),
            "features_per_stage": network.features,
            "kernel_sizes": network.kernels,
            "strides": network.strides,
            blocks: network.encoder_blocks,
            "n_conv_per_stage_decoder": network.decoder_convs,
            "conv_op": "torch.nn.modules.conv.Conv3d",
            "conv_bias": True,
            "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
            "norm_op_kwargs": {"eps": 1e-5, "affine": True},
            "dropout_op": None,
            "dropout_op_kwargs": None,
            "nonlin": "torch.nn.LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }
