"""Benchmark of Qwen2.5-VL against transformers: the vision tower, and training steps of a nano."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

from tumorchain_jax.bench.own_process import OwnProcess
from tumorchain_jax.bench.timing import REPEATS
from tumorchain_jax.bench.transformers_models import require
from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.model import (
    BUS_NANO_VLM,
    Pictures,
    QwenVL,
    QwenVLConfig,
    init_params,
)
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.models.qwen_vl.plan import MERGE, Grid, plan
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.tower import TOWER_3B
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.training.optimizer import make_optimizer
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.step import make_step
from tumorchain_jax.training.vision_language.loss import AnswerLoss, Batch
from tumorchain_jax.weights.vision_language_folder import load_vision_language, save_vision_language

LAYERS = 4
"""Of the tower's 32, one with full attention: they are all alike."""
TOWER = QwenVLConfig(
    replace(TOWER_3B, depth=LAYERS, fullatt_block_indexes=(LAYERS - 1,), out_hidden_size=192),
    BUS_NANO_VLM.decoder,
)
WARM_UP, IGNORED = 2, -100
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0


class Case(NamedTuple):
    """What both sides run, on rows that have one picture of the same size each.

    Attributes:
        is_training: optimizer steps of the whole model; else the tower alone, forward.
    """

    config: QwenVLConfig
    grid: Grid
    rows: int
    length: int
    is_training: bool


CASES = {
    "tower of 484 patches": Case(TOWER, (22, 22), 1, 160, False),
    "nano training step": Case(BUS_NANO_VLM, (16, 16), 8, 192, True),
}


def bench_vision_language(
    cases: Mapping[str, Case] = CASES, repeats: int = REPEATS
) -> dict[str, float]:
    """Measure both sides' seconds, in turns, and the speedup of each case.

    Float32, the same weights and threads; `apart` is the largest difference of the visual tokens
    over the largest, or of the losses, relative.

    Raises:
        InputError: PyTorch or transformers is not installed.
    """
    require("torch", "transformers")
    values: dict[str, float] = {}
    for name, case in cases.items():
        with TemporaryDirectory() as folder:
            save(Path(folder), case.config)
            sides = [OwnProcess(each, folder, case) for each in (_Ours, _Theirs)]
            with sides[0] as ours, sides[1] as theirs:
                bar = tqdm(range(WARM_UP + repeats), name, disable=None)
                turns = [(ours("run"), theirs("run")) for _ in bar]
        apart = [_apart(one, other) for (one, _), (other, _) in turns]
        measured = zip(*turns[WARM_UP:], strict=True)
        ours_s, theirs_s = (median(each[1] for each in side) for side in measured)
        values |= {
            f"{name}, s": ours_s,
            f"{name} of PyTorch, s": theirs_s,
            f"{name}, speedup": theirs_s / ours_s,
            f"{name}, apart": max(apart),
        }
    return values


def save(folder: Path, config: QwenVLConfig) -> None:
    """Write random weights as `ours`, and for transformers as `theirs/model`."""
    params = jax.jit(lambda key: init_params(config, key))(jax.random.key(0))
    arrays = {path: np.asarray(leaf) for path, leaf in params.items()}
    tokenizer = Tokenizer.load(NANO_CHECKPOINT)
    save_vision_language(folder / "ours", config, PictureConfig(), arrays, tokenizer)
    convert("export", folder / "ours", folder / "theirs")


def make_batch(case: Case, image_pad: int) -> dict[str, np.ndarray]:
    """Rows of a picture, a question and an answer of random words: the arrays of a `Batch`."""
    rng, (rows, columns) = np.random.default_rng(0), case.grid
    visual = rows * columns // MERGE**2
    shape = (case.rows, case.length)
    tokens = rng.integers(10, 900, shape).astype(np.int32)
    tokens[:, 8 : 8 + visual] = image_pad
    is_picture, valid = tokens == image_pad, np.ones(shape, bool)
    learnt = np.zeros(shape, bool)
    learnt[:, 8 + visual + 20 :] = True
    patches = rng.normal(size=(case.rows, rows * columns, case.config.tower.patch_values))
    own = plan([case.grid], rows * columns, case.config.tower.window)
    places = {
        name: np.broadcast_to(each, (case.rows, *each.shape))
        for name, each in own._asdict().items()
    }
    positions = rope_positions(is_picture, valid, [[case.grid]] * case.rows).positions
    return {
        **places,
        "patches": patches.astype(np.float32),
        "tokens": tokens,
        "is_picture": is_picture,
        "loss_mask": learnt,
        "valid": valid,
        "positions": np.moveaxis(positions, 0, 1),
    }


def _apart(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


class _Ours:
    def __init__(self, folder: str, case: Case):
        found = load_vision_language(Path(folder) / "ours")
        layers = max(case.config.tower.depth, case.config.decoder.num_hidden_layers)
        self.model = QwenVL(case.config, scan_unroll=layers)
        self.case = case
        arrays = make_batch(case, found.tokenizer.image_pad)
        self.batch = Batch(**jax.device_put(arrays))
        params = {path: jnp.asarray(leaf) for path, leaf in found.params.items()}
        if case.is_training:
            schedule = optax.constant_schedule(LEARNING_RATE)
            optimizer = make_optimizer("adamw", schedule, WEIGHT_DECAY, CLIP_NORM)
            self.step = make_step(AnswerLoss(self.model), optimizer)
            self.state = TrainState(jnp.int32(0), params, {}, jax.jit(optimizer.init)(params))
        else:
            self.params = {"params": unflatten(params)}
            self.tower = jax.jit(partial(self.model.apply, method="see"))

    def run(self) -> tuple[np.ndarray, float]:
        """The loss or the visual tokens, and the seconds."""
        started = time.perf_counter()
        if self.case.is_training:
            self.state, metrics = self.step(self.state, self.batch)
            jax.block_until_ready(self.state)
            seconds = time.perf_counter() - started
            return np.asarray(metrics["loss"]), seconds
        merged = jax.block_until_ready(self.tower(self.params, Pictures(*self.batch[:4])))
        return np.asarray(merged), time.perf_counter() - started


class _Theirs:
    def __init__(self, folder: str, case: Case):
        import os

        import torch
        import transformers

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        kind = transformers.Qwen2_5_VLForConditionalGeneration
        self.model, self.case = kind.from_pretrained(Path(folder) / "theirs" / "model"), case
        arrays = make_batch(case, self.model.config.image_token_id)
        batch = {name: torch.from_numpy(np.array(each)) for name, each in arrays.items()}
        tokens = batch["tokens"].long()
        self.inputs = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": tokens.masked_fill(~batch["loss_mask"], IGNORED),
            "pixel_values": batch["patches"].flatten(0, 1),
            "image_grid_thw": torch.tensor([[1, *case.grid]] * case.rows),
            "mm_token_type_ids": batch["is_picture"].int(),
        }
        # `fused` is the fastest of its variants.
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
        )

    def run(self) -> tuple[np.ndarray, float]:
        """The loss or the visual tokens, and the seconds."""
        import torch

        started = time.perf_counter()
        if not self.case.is_training:
            pixels, grid = self.inputs["pixel_values"], self.inputs["image_grid_thw"]
            with torch.no_grad():
                merged = self.model.model.visual(pixels, grid).pooler_output
            return merged.numpy()[None], time.perf_counter() - started
        self.optimizer.zero_grad()
        loss = self.model(**self.inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        return loss.detach().numpy(), time.perf_counter() - started
