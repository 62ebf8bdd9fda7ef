"""Plans of both formats are read alike; what cannot be run here is refused by name."""

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.segmentation.plans import Intensity, Resampling, Spline, read_plan

Write = Callable[[dict, dict], Path]
STRIDES, KERNELS = ((1, 1, 1), (1, 2, 2), (2, 2, 2)), ((1, 3, 3), (3, 3, 3), (3, 3, 3))
NETWORK = UNet3DConfig(1, 3, (4, 6, 6), STRIDES, KERNELS, (1, 2, 1), (2, 1))


def test_plan_in_full(plans: dict, dataset: dict, write: Write) -> None:
    plan = read_plan(write(plans, dataset))
    assert (plan.name, plan.configuration) == ("Dataset001_Tiny", "3d_fullres")
    assert plan.network == NETWORK
    assert plan.patch_size == (8, 16, 16)
    assert plan.spacing == (3.0, 0.8, 0.7)
    assert (plan.transpose_forward, plan.transpose_backward) == ((2, 0, 1), (1, 2, 0))
    assert (plan.normalization, plan.use_mask_for_norm) == (("CTNormalization",), (False,))
    assert plan.intensities == (Intensity(80.5, 40.25, -160.0, 300.0),)
    assert plan.resampling == Resampling(Spline(3, 0, None, 3.0), Spline(1, 0, None, 3.0))
    assert list(plan.labels.items()) == [("background", 0), ("liver", 2), ("spleen", 1)]
    assert (plan.mirror_axes, plan.trainer) == ((), "nnUNetTrainer")
    assert (plan.plans_json, plan.dataset_json) == (plans, dataset)


def test_plans_of_the_older_format_say_the_same(
    old_plans: dict, plans: dict, dataset: dict, write: Write
) -> None:
    old = "foreground_intensity_properties_by_modality"
    old_plans[old] = old_plans.pop("foreground_intensity_properties_per_channel")
    modality = {**dataset, "modality": dataset["channel_names"]}
    del modality["channel_names"]
    read = read_plan(write(old_plans, modality))
    new = read_plan(write(plans, dataset))
    assert read.network == new.network == NETWORK
    assert read.intensities == new.intensities
    assert read.resampling == new.resampling


def test_residual_plans_of_both_formats(
    old_plans: dict, plans: dict, dataset: dict, write: Write
) -> None:
    old_plans["configurations"]["3d_fullres"]["UNet_class_name"] = "ResidualEncoderUNet"
    architecture = plans["configurations"]["3d_fullres"]["architecture"]
    name = architecture["network_class_name"].replace("PlainConvUNet", "ResidualEncoderUNet")
    architecture["network_class_name"] = name
    options = architecture["arch_kwargs"]
    options["n_blocks_per_stage"] = options.pop("n_conv_per_stage")
    read = [read_plan(write(each, dataset)).network for each in (old_plans, plans)]
    assert read[0] == read[1]
    assert read[0].residual


def test_one_number_stands_for_all_stages(plans: dict, dataset: dict, write: Write) -> None:
    options = plans["configurations"]["3d_fullres"]["architecture"]["arch_kwargs"]
    options |= {"kernel_sizes": 3, "n_conv_per_stage": 2, "strides": [1, 2, [1, 2, 2]]}
    network = read_plan(write(plans, dataset)).network
    assert network.kernels == ((3, 3, 3),) * 3
    assert network.encoder_blocks == (2, 2, 2)
    assert network.strides == ((1, 1, 1), (2, 2, 2), (1, 2, 2))


def test_inheritance_is_followed(plans: dict, dataset: dict, write: Write) -> None:
    plan = read_plan(write(plans, dataset), "3d_larger")
    assert plan.patch_size == (16, 32, 32)
    assert plan.network == NETWORK


def test_ignored_label_is_no_class(plans: dict, dataset: dict, write: Write) -> None:
    dataset["labels"]["ignore"] = 3
    plan = read_plan(write(plans, dataset))
    assert plan.network.classes == 3
    assert "ignore" not in plan.labels


def test_real_plans(shared_data: Path, plans: dict, dataset: dict, write: Write) -> None:
    """The numbers of a published plan for kidneys on CT: the usual network of six stages."""
    import json

    facts = json.loads((shared_data / "facts" / "nnunet_plan_facts.json").read_text())
    kidney = facts["kidney_ct"]["3d_fullres"]
    fields = plans["configurations"]["3d_fullres"]
    fields |= {"patch_size": kidney["patch_size"], "spacing": kidney["spacing_zyx"]}
    options = fields["architecture"]["arch_kwargs"]
    for name in (*("n_stages", "features_per_stage", "strides"), "n_conv_per_stage"):
        options[name] = kidney[name]
    options["n_conv_per_stage_decoder"] = kidney["n_conv_per_stage_decoder"]
    options["kernel_sizes"] = 3
    network = read_plan(write(plans, dataset)).network
    assert network.features == (32, 64, 128, 256, 320, 320)
    assert network.multiple == (32, 32, 32)


# ---------------------------------------------------------------- what is refused

FULL = "configurations 3d_fullres"
KWARGS = f"{FULL} architecture arch_kwargs"
MISSING = object()
BAD: dict[str, tuple[str, Any, str]] = {
    "no configurations": ("configurations", MISSING, "configurations: found no such field"),
    "no spacing": (f"{FULL} spacing", MISSING, "3d_fullres.spacing: found no such field"),
    "no patch size": (f"{FULL} patch_size", MISSING, "patch_size: found no such field"),
    "no network": (f"{FULL} architecture", MISSING, "UNet_class_name: found no such field"),
    "no strides": (f"{KWARGS} strides", MISSING, "arch_kwargs.strides: found no such field"),
    "no name": ("dataset_name", MISSING, "dataset_name: found no such field"),
    "no intensities": (
        "foreground_intensity_properties_per_channel 0 std",
        MISSING,
        "foreground_intensity_properties_per_channel.0.std: found no such field",
    ),
    "another network": (
        f"{FULL} architecture network_class_name",
        "dynamic_network_architectures.architectures.primus.PrimusM",
        "PrimusM', expected PlainConvUNet or ResidualEncoderUNet",
    ),
    "another norm": (
        f"{KWARGS} norm_op",
        "torch.nn.modules.batchnorm.BatchNorm3d",
        "arch_kwargs.norm_op: found 'torch.nn.modules.batchnorm.BatchNorm3d'",
    ),
    "another epsilon": (
        f"{KWARGS} norm_op_kwargs",
        {"eps": 1e-3, "affine": True},
        "norm_op_kwargs: found {'eps': 0.001",
    ),
    "another activation": (f"{KWARGS} nonlin", "torch.nn.ReLU", "nonlin: found 'torch.nn.ReLU'"),
    "another slope": (f"{KWARGS} nonlin_kwargs", {"negative_slope": 0.2}, "nonlin_kwargs: found"),
    "no bias": (f"{KWARGS} conv_bias", False, "conv_bias: found False"),
    "dropout": (f"{KWARGS} dropout_op", "torch.nn.Dropout3d", "dropout_op: found"),
    "an option": (f"{KWARGS} squeeze", True, "squeeze: found True, expected no such option"),
    "2D kernels": (f"{KWARGS} kernel_sizes", [[3, 3]] * 3, "kernel_sizes: found [[3, 3]"),
    "even kernels": (f"{KWARGS} kernel_sizes", [2, 3, 3], "expected odd numbers"),
    "a first stride": (f"{KWARGS} strides", [2, 2, 2], "expected 1, 1, 1 as the first"),
    "two strides": (f"{KWARGS} strides", [1, 2], "strides: found [1, 2], expected 3 sizes"),
    "a negative size": (f"{KWARGS} features_per_stage", [4, -6, 6], "features_per_stage"),
    "stages": (f"{KWARGS} n_stages", "3", "n_stages: found '3', expected a whole number"),
    "an unknown scheme": (
        f"{FULL} normalization_schemes",
        ["MyNormalization"],
        "normalization_schemes: found ['MyNormalization'], expected for each of 1: CTNorm",
    ),
    "schemes": (f"{FULL} normalization_schemes", [], "normalization_schemes: found []"),
    "masks": (f"{FULL} use_mask_for_norm", [1], "use_mask_for_norm: found [1]"),
    "an odd patch": (f"{FULL} patch_size", [8, 16, 18], "expected multiples of (2, 4, 4)"),
    "an empty patch": (f"{FULL} patch_size", [0, 16, 16], "patch_size: found [0, 16, 16]"),
    "a spacing of 0": (f"{FULL} spacing", [3, 0, 0.7], "expected 3 positive numbers"),
    "no number": (f"{FULL} spacing", [3, float("nan"), 0.7], "spacing: found [3, nan"),
    "another resampling": (
        f"{FULL} resampling_fn_data",
        "resample_torch_fornnunet",
        "resampling_fn_data: found 'resample_torch_fornnunet'",
    ),
    "an order": (f"{FULL} resampling_fn_data_kwargs order", 9, "kwargs.order: found 9"),
    "a way": (f"{FULL} resampling_fn_data_kwargs mode", "edge", "kwargs.mode: found 'edge'"),
    "axes": ("transpose_forward", [0, 1, 1], "transpose_forward: found [0, 1, 1]"),
    "another way back": ("transpose_backward", [2, 0, 1], "expected the inverse of (2, 0, 1)"),
    "inheritance of none": (f"{FULL} inherits_from", "3d_none", "3d_none: found no such field"),
    "inheritance in a ring": (f"{FULL} inherits_from", "3d_large", "expected a chain that ends"),
}


def changed(values: dict, where: str, value: Any) -> None:
    *parents, name = where.split(" ")
    inner = reduce(lambda outer, key: outer[key], parents, values)
    if value is MISSING:
        del inner[name]
    else:
        inner[name] = value


@pytest.mark.parametrize(("where", "value", "words"), BAD.values(), ids=BAD)
def test_plan_that_cannot_be_run_is_refused(
    where: str, value: Any, words: str, plans: dict, dataset: dict, write: Write
) -> None:
    changed(plans, where, value)
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        read_plan(write(plans, dataset))
    assert "plans.json: " in str(refused.value)


def test_old_network_that_is_unknown_is_refused(
    old_plans: dict, dataset: dict, write: Write
) -> None:
    old_plans["configurations"]["3d_fullres"]["UNet_class_name"] = "MyUNet"
    with pytest.raises(InputError, match="UNet_class_name: found 'MyUNet', expected PlainConvUNet"):
        read_plan(write(old_plans, dataset))


REFUSED_CONFIGURATIONS = {
    "3d_lowres": "3d_lowres: found no such field, expected one of 3d_fullres, 2d, 3d_large",
    "2d": "patch_size: found [16, 16], expected three axes: 2D is not run here",
    "3d_cascade_fullres": "expected none: a cascade is not run here",
}


@pytest.mark.parametrize("name", REFUSED_CONFIGURATIONS)
def test_configuration_that_cannot_be_run_is_refused(
    name: str, plans: dict, dataset: dict, write: Write
) -> None:
    with pytest.raises(InputError, match=re.escape(REFUSED_CONFIGURATIONS[name])):
        read_plan(write(plans, dataset), name)


BAD_DATASETS: dict[str, tuple[str, Any, str]] = {
    "no labels": ("labels", MISSING, "labels: found no such field"),
    "a region": ("labels liver", [1, 2], "labels.liver: found [1, 2], expected a number: regions"),
    "a gap": ("labels liver", 3, "expected background 0, and from there on each number once"),
    "no background": ("labels background", MISSING, "expected background 0"),
    "names by number": (
        "labels",
        {"0": "background", "1": "liver"},
        "labels.0: found 'background'",
    ),
    "no channels": ("channel_names", MISSING, "channel_names: found no such field"),
    "another channel": ("channel_names 1", "PET", "normalization_schemes"),
}


@pytest.mark.parametrize(("where", "value", "words"), BAD_DATASETS.values(), ids=BAD_DATASETS)
def test_data_set_that_cannot_be_run_is_refused(
    where: str, value: Any, words: str, plans: dict, dataset: dict, write: Write
) -> None:
    changed(dataset, where, value)
    with pytest.raises(InputError, match=re.escape(words)):
        read_plan(write(plans, dataset))


@pytest.mark.parametrize("name", ["plans.json", "dataset.json"])
@pytest.mark.parametrize("text", [None, b"", b"{", b"[1]", b"\xff"])
def test_what_is_no_json_is_refused(
    name: str, text: bytes | None, plans: dict, dataset: dict, write: Write
) -> None:
    path = write(plans, dataset) / name
    path.unlink() if text is None else path.write_bytes(text)
    with pytest.raises(InputError, match=rf"{name}: (JSON|path): found .*complete the folder"):
        read_plan(path.parent)
