"""Benchmark of training steps of image classifiers against timm's, in PyTorch."""

import json
import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file
from tqdm import tqdm

from tumorchain_jax.bench.own_process import OwnProcess
from tumorchain_jax.bench.timing import REPEATS
from tumorchain_jax.bench.timm_models import import_timm
from tumorchain_jax.bench.transformers_models import require
from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.models.families import image_from_dict
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh
from tumorchain_jax.training.classification.config import base_config
from tumorchain_jax.training.classification.init import start
from tumorchain_jax.training.classification.program import build_program
from tumorchain_jax.training.optimizer import learning_rate

MODELS = ("resnet50", "vit_base_patch16_224")
SIDE, ROWS, CLASSES = 224, 4, 2
WARM_UP = 2
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 5e-5, 0.1, 1.0
OURS, THEIRS, PICTURES = "ours", "theirs", "pictures.npy"


def bench_classify(
    models: tuple[str, ...] = MODELS,
    arguments: dict[str, Any] | None = None,
    side: int = SIDE,
    rows: int = ROWS,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """Measure the seconds of a training step of both, and the speedup.

    Both start from the same random weights and train on the same pictures, float32, on as many
    threads as cores, with AdamW and clipped gradients; each has a process of its own, one after the
    other. Ours is the step of `tumorchain train`; pictures are neither mirrored nor moved.

    Args:
        models: timm's names.
        arguments: of timm's `create_model`.
        rows: pictures of a batch.

    Raises:
        InputError: PyTorch or timm is not installed.
    """
    require("torch", "timm")
    values: dict[str, float] = {}
    for name in models:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            _write(folder, name, arguments or {}, side, rows)
            losses: dict[str, tuple[float, ...]] = {}
            seconds: dict[str, float] = {}
            for what, make in ((OURS, _Ours), (THEIRS, _Reference)):
                with OwnProcess(make, folder) as trainer:
                    bar = tqdm(range(WARM_UP + repeats), f"{name}, {what}", disable=None)
                    found = [trainer("step") for _ in bar]
                losses[what], times = zip(*found, strict=True)
                seconds[what] = median(times[WARM_UP:])
        apart = [abs(a - b) / abs(b) for a, b in zip(losses[OURS], losses[THEIRS], strict=True)]
        values |= {
            f"{name}, step, s": seconds[OURS],
            f"{name}, step of timm, s": seconds[THEIRS],
            f"{name}, speedup": seconds[THEIRS] / seconds[OURS],
            f"{name}, first losses apart, relative": apart[0],
            f"{name}, losses apart, relative, at most": max(apart),
        }
    return values


def _write(folder: Path, name: str, arguments: dict[str, Any], side: int, rows: int) -> None:
    """Random weights of timm's as it writes them, the same imported, and pictures."""
    import torch

    torch.manual_seed(0)
    model = import_timm().create_model(name, num_classes=CLASSES, **arguments)
    tensors = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    (folder / THEIRS).mkdir()
    save_file(tensors, folder / THEIRS / "model.safetensors")
    fields = {"architecture": name, "num_classes": CLASSES, "model_args": arguments}
    fields["global_pool"] = "token" if name.startswith("vit") else "avg"
    (folder / THEIRS / "config.json").write_text(json.dumps(fields))
    convert("import", folder / THEIRS, folder / OURS)
    pictures = np.random.default_rng(0).integers(0, 256, (rows, side, side), np.uint8)
    np.save(folder / PICTURES, pictures)


def _labels(rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int32) % CLASSES


class _Ours:
    def __init__(self, folder: Path):
        pictures = np.load(folder / PICTURES).astype(np.float32)
        model = image_from_dict(Imported(folder / OURS).config["classifier"])
        config = base_config(model)
        config.init, config.data.side = str(folder / OURS), pictures.shape[1]
        config.batch_size, config.learning_rate = len(pictures), LEARNING_RATE
        config.weight_decay, config.clip_norm = WEIGHT_DECAY, CLIP_NORM
        config.augmentation.flip = False
        mesh = make_mesh({}, jax.devices()[:1])
        self._program = build_program(config, mesh)
        self._state = start(config, self._program)
        self._on_mesh = partial(on_mesh, mesh, self._program.rules)
        batch = {"image": pictures, "label": _labels(len(pictures))}
        self._batch = jax.device_put(batch | {"weight": np.ones(len(pictures), np.float32)})

    def step(self) -> tuple[float, float]:
        """Make one update; the loss before it, and its seconds."""
        started = time.perf_counter()
        with self._on_mesh():
            self._state, metrics = self._program.step(self._state, self._batch)
        jax.block_until_ready(self._state)
        return float(metrics["loss"]), time.perf_counter() - started


class _Reference:
    def __init__(self, folder: Path):
        import torch
        from safetensors.torch import load_file

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        fields = json.loads((folder / THEIRS / "config.json").read_text())
        timm: ModuleType = import_timm()
        self._model = timm.create_model(
            fields["architecture"], num_classes=CLASSES, **fields["model_args"]
        )
        self._model.load_state_dict(load_file(folder / THEIRS / "model.safetensors"))
        self._model.train()
        # `fused` is the fastest of its variants.
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )
        config = base_config(image_from_dict(Imported(folder / OURS).config["classifier"]))
        mean, std = (torch.tensor(each)[:, None, None] for each in (config.mean, config.std))
        pictures = np.load(folder / PICTURES)
        self._schedule = learning_rate(LEARNING_RATE, config.steps, config.warmup_ratio)
        self._count = 0
        self._images = (torch.from_numpy(pictures)[:, None] / 255 - mean) / std
        self._labels = torch.from_numpy(_labels(len(pictures))).long()

    def step(self) -> tuple[float, float]:
        """Make one update; the loss before it, and its seconds."""
        import torch

        self._optimizer.param_groups[0]["lr"] = float(self._schedule(self._count))
        self._count += 1
        started = time.perf_counter()
        self._optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self._model(self._images), self._labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), CLIP_NORM)
        self._optimizer.step()
        return loss.item(), time.perf_counter() - started
