"""Benchmark of a tile and a whole scan through nnU-Net's full network against nnU-Net itself."""

import os
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import nibabel as nib
import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.bench.own_process import OwnProcess
from tumorchain_jax.bench.timing import REPEATS, seconds
from tumorchain_jax.bench.transformers_models import require
from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.segmentation.model_folder import (
    SegmentationModel,
    digest,
    export_nnunet,
    load_segmentation_model,
    save_segmentation_model,
)
from tumorchain_jax.segmentation.plans import Intensity, Plan, read_plan
from tumorchain_jax.segmentation.predict import Predictor
from tumorchain_jax.segmentation.tiles import tile_program
from tumorchain_jax.training.segmentation.plan import write_plan

NETWORK = UNet3DConfig(
    in_channels=1,
    classes=25,
    features=(32, 64, 128, 256, 320, 320),
    strides=((1, 1, 1), *((2, 2, 2),) * 5),
    kernels=((3, 3, 3),) * 6,
    encoder_blocks=(2,) * 6,
    decoder_convs=(2,) * 5,
)
"""31 million parameters; the classes are those of the first part of TotalSegmentator's `total`."""
INTENSITY = Intensity(mean=50.0, std=150.0, percentile_00_5=-200.0, percentile_99_5=300.0)
FIRST_SEED = 7_000_000
LOGITS, LABELS = "logits.npy", "labels.nii.gz"


def bench_segment(
    network: UNet3DConfig = NETWORK,
    patch: int = 128,
    spacing: float = 2.0,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """Measure seconds and peak memory of both, and the speedups.

    The same random weights, float32, the same threads, no mirroring, each in a process of its own,
    one after the other. A tile is the median of `repeats`. A scan, from its file to a file of
    labels, runs once; the scan is a digital patient. Compilation comes before.

    Args:
        patch: voxels of a tile along each axis.
        spacing: mm of the voxels that the network sees; it decides the number of tiles.

    Raises:
        InputError: PyTorch or nnU-Net is not installed.
    """
    require("torch", "nnunetv2")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = _write_model(folder, network, patch, spacing)
        write_patient(make_patient(FIRST_SEED), folder)
        values: dict[str, float] = {}
        ours, reference = (_measure(side, folder, repeats) for side in SIDES)
        for what, own in ours.items():
            other = reference[what]
            values |= {
                f"{what}, s": own.seconds,
                f"{what} by nnU-Net, s": other.seconds,
                f"{what}, speedup": other.seconds / own.seconds,
                f"{what}, peak GB": own.peak_gb,
                f"{what} by nnU-Net, peak GB": other.peak_gb,
            }
        logits, expected = (np.load(folder / side.name / LOGITS) for side in SIDES)
        files = [nib.Nifti1Image.from_filename(folder / side.name / LABELS) for side in SIDES]
        labels, wanted = (np.asarray(file.dataobj) for file in files)
    return values | {
        "classes": float(len(plan.labels)),
        "logits apart, relative, at most": float(abs(logits - expected).max() / expected.std()),
        "same labels, share of voxels": float((labels == wanted).mean()),
    }


def _write_model(folder: Path, network: UNet3DConfig, patch: int, spacing: float) -> Plan:
    """Write random weights as a folder of ours and as one of nnU-Net's."""
    sizes = {"patch_size": (patch,) * 3, "spacing": (spacing,) * 3}
    labels = [f"organ_{number}" for number in range(1, network.classes)]
    about = ConfigDict({"name": "Dataset001_Random", "network": network, "labels": labels, **sizes})
    write_plan(folder, about, INTENSITY)
    plan = replace(read_plan(folder), mirror_axes=())
    params = _random(plan)
    model = SegmentationModel(plan, (params,), digest(plan, [params]), str(folder))
    save_segmentation_model(model, folder / _Ours.name)
    export_nnunet(model, folder / _Reference.name)
    return plan


def _random(plan: Plan) -> Any:
    rng = np.random.default_rng(0)

    def draw(path: Any, leaf: Any) -> np.ndarray:
        if leaf.ndim == 1:
            return np.full(leaf.shape, float("scale" in str(path)), np.float32)
        fan_in = np.prod(leaf.shape[:-1])
        values = (rng.standard_normal(leaf.shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        # A head weighs features about evenly for and against a class, so no class wins everywhere.
        return values - values.mean(axis=0) if leaf.ndim == 2 else values

    tile = jax.ShapeDtypeStruct((1, *plan.patch_size, 1), jnp.float32)
    shapes = jax.eval_shape(UNet3D(plan.network).init, jax.random.key(0), tile)
    return jax.tree_util.tree_map_with_path(draw, nn.meta.unbox(shapes)["params"])


class _Cost(NamedTuple):
    seconds: float
    peak_gb: float


def _measure(side: Any, folder: Path, repeats: int) -> dict[str, _Cost]:
    """Measure one side's work; the scan, of many tiles, takes more memory than the tile before."""
    with OwnProcess(side, folder) as process:
        return {what: _Cost(process(what, repeats), process.peak_gb()) for what in ("tile", "scan")}


class _Ours:
    name = "ours"

    def __init__(self, folder: Path):
        self._scan, self._folder = folder / "ct.nii.gz", folder / self.name
        self._model = load_segmentation_model(self._folder)

    def tile(self, repeats: int) -> float:
        """Seconds of a tile; its logits go into a file."""
        plan, fold = self._model.plan, self._model.folds[0]
        params, tile = jax.device_put(fold), jnp.asarray(_tile(plan))
        program = jax.jit(tile_program(plan.network, ()))
        np.save(self._folder / LOGITS, program(params, tile)[0])
        return seconds(partial(program, params, tile), repeats)

    def scan(self, _: int) -> float:
        """Seconds from a file of a CT to a file of labels."""
        predictor = Predictor(self._model, mirror=False)
        started = time.perf_counter()
        labels = predictor(read_ct(self._scan))
        nib.save(nib.Nifti1Image(labels.voxels, labels.affine), self._folder / LABELS)
        return time.perf_counter() - started


class _Reference:
    name = "reference"

    def __init__(self, folder: Path):
        import torch

        self._scan, self._folder = folder / "ct.nii.gz", folder / self.name
        self._plan = read_plan(folder / _Ours.name)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        # It asks for its folders when imported, and can do without.
        for name in ("raw", "preprocessed", "results"):
            os.environ[f"nnUNet_{name}"] = str(folder)
        self._predictor = import_module("nnunetv2.inference.predict_from_raw_data").nnUNetPredictor(
            use_mirroring=False,
            perform_everything_on_device=False,
            device=torch.device("cpu"),
            allow_tqdm=False,
        )
        self._predictor.initialize_from_trained_model_folder(str(self._folder), (0,))

    def tile(self, repeats: int) -> float:
        import torch

        network = self._predictor.network.eval()
        tile = torch.from_numpy(_tile(self._plan))[None]
        with torch.inference_mode():
            np.save(self._folder / LOGITS, np.moveaxis(network(tile)[0].numpy(), 0, -1))
            return seconds(lambda: network(tile).numpy(), repeats)

    def scan(self, _: int) -> float:
        predictor = self._predictor
        reader = predictor.plans_manager.image_reader_writer_class()
        started = time.perf_counter()
        image, properties = reader.read_images([str(self._scan)])
        truncated = str(self._folder / LABELS.removesuffix(".nii.gz"))
        predictor.predict_single_npy_array(image, properties, None, truncated, False)
        return time.perf_counter() - started


SIDES = (_Ours, _Reference)


def _tile(plan: Plan) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, *plan.patch_size), np.float32)
