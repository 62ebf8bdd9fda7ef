"""Six steps of a tiny model on some mesh, as JSON; run with as many devices as it has.

    python tests/parallel/steps_on_mesh.py '{"mesh": {"fsdp": 8}}' ...

Other fields of a run change the configuration. With PROCESS=HOST:PORT,N,I in the environment it is
one of N processes, which have the eight devices together.
"""

import json
import os
import runpy
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.crops import WORLD, CropConfig
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.parallel.mesh import AXES, make_mesh
from tumorchain_jax.parallel.partition import on_mesh
from tumorchain_jax.parallel.processes import global_batch, join, local_rows
from tumorchain_jax.training.tumorchain.initial import random_params
from tumorchain_jax.training.tumorchain.loss import Batch
from tumorchain_jax.training.tumorchain.program import Program, build_program

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
MODEL = TumorChainConfig(
    encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 32, 64, 2, 4),
    decoder=Qwen2Config(96, 32, 64, 2, 8, 4, 8, False),
    roi_slots=4,
)
ADAPTED = replace(MODEL, lora=LoRA((r".*/(q_proj|down_proj|qkv|linear1)",), rank=2))
CROPPED = replace(
    MODEL, roi_source="crop", roi_rank="evidence", crop=CropConfig(("liver", "lungs"), candidates=6)
)
BATCH, LENGTH, STEPS = 8, 24, 6
MADE: dict[TumorChainConfig, dict[str, np.ndarray]] = {}


def configuration(**changes: Any) -> ConfigDict:
    """nano's with a tiny model; see `changes` for what a run may say."""
    config = runpy.run_path(str(NANO))["get_config"]()
    model = ADAPTED if changes.pop("lora", False) else MODEL
    model = CROPPED if changes.pop("crops", False) else model
    config.update_from_flattened_dict(
        {
            "model": model,
            "batch_size": BATCH,
            "micro_batch_size": BATCH,
            "data.length": LENGTH,
            "steps": STEPS,
            "optimizer": "adamw",
            "learning_rate": 3e-3,
            "trainable": ((".*", True),),
        }
    )
    if heads := changes.pop("key_value_heads", 0):
        decoder = replace(config.model.decoder, num_key_value_heads=heads)
        config.model = replace(config.model, decoder=decoder)
    if config.model.lora:
        config.trainable = ((".*/lora_[ab]", True), ("decoder/.*", False), (".*", True))
    mesh = dict.fromkeys(AXES, 1) | changes.pop("mesh")
    config.update_from_flattened_dict(changes | {f"mesh.{axis}": n for axis, n in mesh.items()})
    return config


def batch_of(step: int, model: TumorChainConfig) -> dict[str, np.ndarray]:
    """Two questions a row, of unequal lengths, behind a shared prefix; crops if it reads any."""
    rng = np.random.default_rng(step)
    segment_ids = np.zeros((BATCH, LENGTH), np.int32)
    for row in segment_ids:
        first, second = np.sort(rng.choice(np.arange(6, 22), 2, replace=False))
        row[4:first], row[first:second], row[second:] = 1, 2, -1
    roi, candidates = model.roi, (BATCH, 57, model.roi.candidates)
    cells = roi.cells * (1 + len(roi.regions))
    last = roi.visual_tokens + 57 * roi.slots if roi.regions else roi.visual_tokens
    batch = {
        "volume": rng.integers(0, 256, (BATCH, *MODEL.encoder.image), np.uint8),
        "tokens": rng.integers(0, 96, (BATCH, LENGTH), np.int32),
        "visual_index": rng.integers(-20, last, (BATCH, LENGTH), np.int32),
        "loss_mask": (segment_ids > 0) & (rng.random((BATCH, LENGTH)) < 0.7),
        "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (BATCH, 1)),
        "segment_ids": segment_ids,
        "roi_index": rng.integers(0, cells, candidates, np.int32),
        "roi_valid": rng.random(candidates) < 0.4,
        "abnormal": rng.integers(-1, 2, (BATCH, 57), np.int8),
    }
    if roi.regions:
        crops = (BATCH, len(roi.regions), *model.encoder.image)
        batch["crops"] = rng.integers(0, 256, crops, np.uint8)
        batch["crop_world"] = rng.uniform(0.1, 1, (*crops[:2], WORLD)).astype(np.float32)
    return batch


def initial(model: TumorChainConfig, program: Program) -> dict[str, jax.Array]:
    """Random parameters, cut as the program wants them; in one process compiled once a model."""
    if jax.process_count() > 1:
        return random_params(model, 0, program.params)
    if model not in MADE:
        made = random_params(model, 0, program.params)
        MADE[model] = {path: np.asarray(leaf) for path, leaf in made.items()}
    return {
        path: jax.device_put(MADE[model][path], leaf.sharding)
        for path, leaf in program.params.items()
    }


def losses(config: ConfigDict, program: Program) -> list[float]:
    """Of each step; also of several processes."""
    state = program.start(initial(config.model, program))
    sharding: Any = program.batch.tokens.sharding
    rows, found = local_rows(sharding, BATCH), []
    for step in range(STEPS):
        own = {name: array[rows] for name, array in batch_of(step, config.model).items()}
        state, metrics = program.step(state, Batch(**global_batch(own, rows, BATCH, sharding)))
        found.append(float(metrics["loss"]))
    return found


def report(**changes: Any) -> dict[str, Any]:
    """Losses, the number of constraints in the lowered step, and what the devices hold."""
    config = configuration(**changes)
    mesh = make_mesh(dict(config.mesh), jax.devices()[: prod(dict(config.mesh).values())])
    program = build_program(config, mesh)
    with on_mesh(mesh, program.rules):
        lowered = program.step.lower(program.state, program.batch)
        return {
            "losses": losses(config, program),
            "constraints": lowered.as_text().count("sdy.sharding_constraint"),
            "shardings": {path: str(leaf.sharding.spec) for path, leaf in program.params.items()},
        }


if __name__ == "__main__":
    if process := os.environ.get("PROCESS"):
        address, count, index = process.split(",")
        jax.config.update("jax_num_cpu_devices", 8 // int(count))
        join(address, int(count), int(index))
    else:
        jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps([report(**json.loads(run)) for run in sys.argv[1:]]))
