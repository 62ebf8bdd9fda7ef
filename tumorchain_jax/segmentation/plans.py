"""Read nnU-Net's `plans.json` and `dataset.json`: all that running a model needs.

Both formats are read: plans that spell the network out (`architecture`), and those from before
that, which TotalSegmentator's models have (nnunetv2/utilities/plans_handling/plans_handler.py).
What nnU-Net supports and this package does not is refused by name.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.json_fields import Fields, read_json
from tumorchain_jax.models.unet3d.model import Size, UNet3DConfig

PLANS, DATASET = "plans.json", "dataset.json"
PLAIN, RESIDUAL = "PlainConvUNet", "ResidualEncoderUNet"
ANOTHER = "use another configuration"
NORMALIZATIONS = (
    *("CTNormalization", "ZScoreNormalization", "NoNormalization"),
    *("RescaleTo01Normalization", "RGBTo01Normalization"),
)
RESAMPLING = "resample_data_or_seg_to_shape"
LAYERS: dict[str, tuple[Any, ...]] = {
    "conv_op": ("torch.nn.modules.conv.Conv3d", "torch.nn.Conv3d"),
    "conv_bias": (True,),
    "norm_op": ("torch.nn.modules.instancenorm.InstanceNorm3d", "torch.nn.InstanceNorm3d"),
    "norm_op_kwargs": ({"eps": 1e-5, "affine": True},),
    "nonlin": ("torch.nn.LeakyReLU", "torch.nn.modules.activation.LeakyReLU"),
}
"""Supported values of a network's layers."""
OPTIONS: dict[str, tuple[Any, ...]] = {
    "nonlin_kwargs": (None, {}, {"inplace": True}, {"inplace": True, "negative_slope": 0.01}),
    "dropout_op": (None,),
    "dropout_op_kwargs": (None, {}),
    "nonlin_first": (False,),
    "deep_supervision": (False, True),
    "bottleneck_channels": (None,),
    "stem_channels": (None,),
}
"""Supported values of further options."""
SIZES = ("n_stages", "features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage_decoder")
SPLINE = {
    "is_seg": False,
    "order": 3,
    "order_z": 0,
    "force_separate_z": False,
    "separate_z_anisotropy_threshold": 3,
}
"""Defaults of nnU-Net's resampling function."""


@dataclass(frozen=True)
class Intensity:
    """Statistics of one channel over the foreground of all training scans (HU for CT)."""

    mean: float
    std: float
    percentile_00_5: float
    percentile_99_5: float


@dataclass(frozen=True)
class Spline:
    """Resampling of one kind of array.

    Attributes:
        order: of the spline.
        order_z: along the coarse axis, if that is resampled separately.
        separate_z: whether it is; None: if spacings differ by more than `threshold`.
    """

    order: int
    order_z: int
    separate_z: bool | None
    threshold: float


@dataclass(frozen=True)
class Resampling:
    """Resampling to the plan's spacing (`image`), and back from it (`logits`)."""

    image: Spline
    logits: Spline


@dataclass(frozen=True)
class Plan:
    """nnU-Net's plan for a data set, and its trainer's facts about the weights.

    Attributes:
        name: of the data set.
        configuration: of the plan: `3d_fullres`, ...
        patch_size: voxels of a tile; its axes are the scan's after `transpose_forward`.
        spacing: mm, along the same axes.
        transpose_forward, transpose_backward: from SimpleITK's axes (z, y, x) and back.
        normalization: nnU-Net's name of the scheme of each channel.
        use_mask_for_norm: whether that uses the non-zero voxels alone.
        intensities: of each channel.
        labels: {name: value} in the data set's order; the background is 0.
        plans_json, dataset_json: the whole files.
        mirror_axes: axes of a tile along which the trainer allows mirroring.
        trainer: its name in nnU-Net.
    """

    name: str
    configuration: str
    network: UNet3DConfig
    patch_size: Size
    spacing: tuple[float, float, float]
    transpose_forward: Size
    transpose_backward: Size
    normalization: tuple[str, ...]
    use_mask_for_norm: tuple[bool, ...]
    intensities: tuple[Intensity, ...]
    resampling: Resampling
    labels: Mapping[str, int]
    plans_json: Mapping[str, Any]
    dataset_json: Mapping[str, Any]
    mirror_axes: tuple[int, ...] = ()
    trainer: str = "nnUNetTrainer"


def read_plan(folder: Path, configuration: str = "3d_fullres") -> Plan:
    """Read the plan of a folder with `plans.json` and `dataset.json`.

    Raises:
        InputError: a file is missing, is no JSON or lacks a field; there is no such configuration;
            it needs what is not supported: 2D, a cascade, regions, another network.
    """
    plans = Fields(folder / PLANS, "", read_json(folder / PLANS))
    dataset = Fields(folder / DATASET, "", read_json(folder / DATASET))
    fields = _configuration(plans, configuration)
    channels, labels = _channels(dataset), _labels(dataset)
    network = _network(fields, channels, len(labels))
    patch_size = fields.size("patch_size")
    if np.any(np.mod(patch_size, network.multiple)):
        fields.refuse("patch_size", f"multiples of {network.multiple}, the strides together")
    d, h, w = fields.numbers("spacing", 3)
    if min(d, h, w) <= 0:
        fields.refuse("spacing", "3 positive numbers")
    forward, backward = _transposes(plans)
    normalization, use_mask = _normalization(fields, channels)
    image = _spline(fields, "resampling_fn_data")
    logits = _spline(fields, "resampling_fn_probabilities")
    return Plan(
        name=plans.text("dataset_name"),
        configuration=configuration,
        network=network,
        patch_size=patch_size,
        spacing=(d, h, w),
        transpose_forward=forward,
        transpose_backward=backward,
        normalization=normalization,
        use_mask_for_norm=use_mask,
        intensities=_intensities(plans, channels),
        resampling=Resampling(image, logits),
        labels=labels,
        plans_json=plans.values,
        dataset_json=dataset.values,
    )


def _configuration(plans: Fields, name: str) -> Fields:
    """Merge a 3D configuration with those that it inherits from."""
    configurations = plans.mapping("configurations")
    chain: list[Mapping[str, Any]] = []
    wanted: str | None = name
    while wanted is not None:
        if wanted not in configurations.values:
            expected = f"one of {', '.join(configurations.values)}"
            configurations.refuse(wanted, expected, ANOTHER)
        fields = configurations.mapping(wanted)
        chain.append(fields.values)
        if len(chain) > len(configurations.values):
            fields.refuse("inherits_from", "a chain that ends")
        wanted = fields.text("inherits_from") if "inherits_from" in fields.values else None
    merged = {key: value for values in reversed(chain) for key, value in values.items()}
    fields = Fields(plans.path, f"configurations.{name}.", merged)
    if len(fields.sequence("patch_size")) == 2:
        fields.refuse("patch_size", "three axes: 2D is not run here", ANOTHER)
    if merged.get("previous_stage") is not None:
        fields.refuse("previous_stage", "none: a cascade is not run here", ANOTHER)
    return fields


def _channels(dataset: Fields) -> int:
    # The name in older data sets.
    old = "modality" in dataset.values
    return len(dataset.mapping("modality" if old else "channel_names").values)


def _labels(dataset: Fields) -> dict[str, int]:
    labels = dataset.mapping("labels")
    for name, value in labels.values.items():
        if isinstance(value, list):
            labels.refuse(name, "a number: regions that overlap are not run here")
    # nnU-Net ignores voxels of this label in training.
    values = {name: labels.integer(name) for name in labels.values if name != "ignore"}
    if sorted(values.values()) != [*range(len(values))] or values.get("background") != 0:
        dataset.refuse("labels", "background 0, and from there on each number once")
    return values


def _network(fields: Fields, channels: int, classes: int) -> UNet3DConfig:
    if "architecture" in fields.values:
        architecture = fields.mapping("architecture")
        kind = _kind(architecture, "network_class_name")
        sizes = architecture.mapping("arch_kwargs")
        encoder_blocks = "n_conv_per_stage" if kind == PLAIN else "n_blocks_per_stage"
        _check_layers(sizes, encoder_blocks)
        strides, kernels = "strides", "kernel_sizes"
        features = sizes.integers("features_per_stage", sizes.integer("n_stages", 2), least=1)
    else:
        kind, sizes = _kind(fields, "UNet_class_name"), fields
        encoder_blocks = "n_conv_per_stage_encoder"
        strides, kernels = "pool_op_kernel_sizes", "conv_kernel_sizes"
        base, most = (
            fields.integer(f"{name}_num_features", 1) for name in ("UNet_base", "unet_max")
        )
        features = tuple(min(base << i, most) for i in range(len(fields.sequence(encoder_blocks))))
    stages = len(features)
    config = UNet3DConfig(
        channels,
        classes,
        features,
        sizes.sizes(strides, stages),
        sizes.sizes(kernels, stages),
        sizes.integers(encoder_blocks, stages, least=1),
        sizes.integers("n_conv_per_stage_decoder", stages - 1, least=1),
        residual=kind == RESIDUAL,
    )
    if config.strides[0] != (1, 1, 1):
        sizes.refuse(strides, "1, 1, 1 as the first: labels are as fine as the scan")
    if any(size % 2 == 0 for kernel in config.kernels for size in kernel):
        sizes.refuse(kernels, "odd numbers")
    return config


def _kind(fields: Fields, name: str) -> str:
    # Classes have moved between modules.
    kind = fields.text(name).rpartition(".")[2]
    if kind not in (PLAIN, RESIDUAL):
        fields.refuse(name, f"{PLAIN} or {RESIDUAL}")
    return kind


def _check_layers(sizes: Fields, encoder_blocks: str) -> None:
    for name, known in LAYERS.items():
        sizes.only(name, known)
    for name in sorted(sizes.values.keys() - {*LAYERS, *SIZES, encoder_blocks}):
        if name not in OPTIONS:
            sizes.refuse(name, "no such option")
        sizes.only(name, OPTIONS[name])


def _transposes(plans: Fields) -> tuple[Size, Size]:
    forward, backward = (plans.integers(f"transpose_{way}", 3) for way in ("forward", "backward"))
    if sorted(forward) != [0, 1, 2]:
        plans.refuse("transpose_forward", "0, 1 and 2 in some order")
    if backward != tuple(map(forward.index, range(3))):
        plans.refuse("transpose_backward", f"the inverse of {forward}")
    (a, b, c), (d, e, f) = forward, backward
    return (a, b, c), (d, e, f)


def _normalization(fields: Fields, channels: int) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    schemes = fields.sequence("normalization_schemes")
    if len(schemes) != channels or not all(scheme in NORMALIZATIONS for scheme in schemes):
        fields.refuse(
            "normalization_schemes", f"for each of {channels}: {', '.join(NORMALIZATIONS)}"
        )
    use_mask = fields.sequence("use_mask_for_norm")
    if len(use_mask) != channels or not all(type(value) is bool for value in use_mask):
        fields.refuse("use_mask_for_norm", f"{channels} times true or false")
    return tuple(schemes), tuple(use_mask)


def _intensities(plans: Fields, channels: int) -> tuple[Intensity, ...]:
    name, old = (f"foreground_intensity_properties_{by}" for by in ("per_channel", "by_modality"))
    is_old = old in plans.values and name not in plans.values
    per_channel = plans.mapping(old if is_old else name)
    return tuple(_intensity(per_channel.mapping(str(channel))) for channel in range(channels))


def _intensity(channel: Fields) -> Intensity:
    names = (field.name for field in dataclasses.fields(Intensity))
    return Intensity(**{name: channel.number(name) for name in names})


def _spline(fields: Fields, name: str) -> Spline:
    fields.only(name, [RESAMPLING])
    given = fields.mapping(f"{name}_kwargs")
    options = Fields(given.path, given.where, {**SPLINE, **given.values})
    for option in given.values.keys() - SPLINE.keys():
        options.refuse(option, "no such option")
    options.only("is_seg", [False])
    options.only("force_separate_z", [None, False, True])
    for order in ("order", "order_z"):
        options.only(order, range(6))
    return Spline(
        options.integer("order"),
        options.integer("order_z"),
        options.anything("force_separate_z"),
        options.number("separate_z_anisotropy_threshold"),
    )
