"""Fixtures for every test: the real data, where there is any; nnU-Net's plans."""

import gc
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights import pickles

# From fast to slow; tests with neither mark are faster still.
TIERS = ("program", "system")
# Real scans and tokenizer ranks stay out of the repository; beside the checkout unless told else.
SHARED = Path(os.environ.get("TUMORCHAIN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_configure(config: pytest.Config) -> None:
    """Workers and the processes that tests start share what any of them has compiled."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="compiled-")
        config.add_cleanup(folder.cleanup)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that is marked neither `program` nor `system` is `unit`; slow files come first.

    Two workers take a file each: one with a long test, taken last, would leave the other idle.
    """
    slow: dict[Path, int] = {}
    for item in items:
        tiers = [tier for tier in TIERS if item.get_closest_marker(tier)]
        if not tiers:
            item.add_marker("unit")
        rank = max((TIERS.index(tier) for tier in tiers), default=-1)
        slow[item.path] = max(slow.get(item.path, -1), rank)
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collection, which took a tenth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # Where in the source an operation was traced is of no use to a test.
    jax.config.update("jax_traceback_in_locations_limit", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile without costly optimisations where compiling takes most of the time."""
    system = item.get_closest_marker("system")
    haste = system is None or system.kwargs.get("haste", False)
    jax.config.update("jax_disable_most_optimizations", haste)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(haste))  # of processes that it starts


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"no real test data at {SHARED} (set TUMORCHAIN_TEST_DATA)")
    return SHARED


@pytest.fixture
def pickles_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the code of the isolated reader's child here, where PyTorch is imported already.

    For tests that trust their pickles; that the child is one: tests/convert/test_pickles.py.
    """

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        assert command[:3] == [sys.executable, "-I", "-c"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", command[2:3] + command[4:])
            patch.setattr(resource, "setrlimit", lambda *limits: None)
            exec(command[3], {})
        return subprocess.CompletedProcess(command, 0)

    children = SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(pickles, "subprocess", children)


def old_network(
    kind: str, features: list, strides: list, kernels: list, blocks: list, decoder: list
) -> dict[str, Any]:
    """Fields of a configuration in the older format, which knows doubling features alone."""
    return {
        "UNet_class_name": kind,
        "UNet_base_num_features": features[0],
        "unet_max_num_features": features[-1],
        "n_conv_per_stage_encoder": blocks,
        "n_conv_per_stage_decoder": decoder,
        "num_pool_per_axis": [3, 3, 3],
        "pool_op_kernel_sizes": strides,
        "conv_kernel_sizes": kernels,
    }


def new_network(
    kind: str, features: list, strides: list, kernels: list, blocks: list, decoder: list
) -> dict[str, Any]:
    """The same in today's format."""
    options = {
        "n_stages": len(blocks),
        "features_per_stage": features,
        "conv_op": "torch.nn.modules.conv.Conv3d",
        "kernel_sizes": kernels,
        "strides": strides,
        "n_conv_per_stage" if kind == "PlainConvUNet" else "n_blocks_per_stage": blocks,
        "n_conv_per_stage_decoder": decoder,
        "conv_bias": True,
        "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
        "norm_op_kwargs": {"eps": 1e-05, "affine": True},
        "dropout_op": None,
        "dropout_op_kwargs": None,
        "nonlin": "torch.nn.LeakyReLU",
        "nonlin_kwargs": {"inplace": True},
    }
    architecture = {
        "network_class_name": f"dynamic_network_architectures.architectures.unet.{kind}",
        "arch_kwargs": options,
        "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
    }
    return {"architecture": architecture}


def make_plans(network: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`plans.json` of one configuration; `changes` are of it, or of what is around it."""
    resampling = {"order_z": 0, "force_separate_z": None}
    intensity = {"mean": 50.0, "std": 100.0, "percentile_00_5": -200.0, "percentile_99_5": 300.0}
    configuration = {
        "data_identifier": "nnUNetPlans_3d_fullres",
        "preprocessor_name": "DefaultPreprocessor",
        "batch_size": 2,
        "patch_size": [16, 16, 16],
        "median_image_size_in_voxels": [64, 64, 64],
        "spacing": [1.5, 1.5, 1.5],
        "normalization_schemes": ["CTNormalization"],
        "use_mask_for_norm": [False],
        "batch_dice": True,
        "resampling_fn_data": "resample_data_or_seg_to_shape",
        "resampling_fn_data_kwargs": {**resampling, "is_seg": False, "order": 3},
        "resampling_fn_seg": "resample_data_or_seg_to_shape",
        "resampling_fn_seg_kwargs": {**resampling, "is_seg": True, "order": 1},
        "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
        "resampling_fn_probabilities_kwargs": {**resampling, "is_seg": False, "order": 1},
    }
    plans = {
        "dataset_name": "Dataset001_Random",
        "plans_name": "nnUNetPlans",
        "image_reader_writer": "SimpleITKIO",
        "label_manager": "LabelManager",
        "experiment_planner_used": "ExperimentPlanner",
        "original_median_spacing_after_transp": [1.5, 1.5, 1.5],
        "original_median_shape_after_transp": [64, 64, 64],
        "transpose_forward": [0, 1, 2],
        "transpose_backward": [0, 1, 2],
        "foreground_intensity_properties_per_channel": {"0": intensity},
    }
    around = {key: value for key, value in changes.items() if key in plans}
    own = {key: value for key, value in changes.items() if key not in plans}
    return {
        **plans,
        **around,
        "configurations": {"3d_fullres": {**configuration, **network, **own}},
    }


@pytest.fixture(scope="session")
def nnunet_plans() -> SimpleNamespace:
    """Makes plans in nnU-Net's formats: `make(old(...))`, `make(new(...))`."""
    return SimpleNamespace(make=make_plans, old=old_network, new=new_network)


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six digital patients on a tiny grid; made once."""
    folder = tmp_path_factory.getbasetemp() / "phantoms"
    write_phantoms(folder, 0, 6, PreprocessConfig((8, 16, 16)), 512, processes=1)
    return folder


@pytest.fixture(scope="session")
def tiny() -> TumorChainConfig:
    """A model of that grid: one global token and eight cells."""
    return TumorChainConfig(
        encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
        decoder=Qwen2Config(
            vocab_size=512,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=True,
        ),
        roi_slots=4,
    )
