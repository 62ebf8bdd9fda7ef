"""The smallest Qwen2.5-VL that has all parts, on rows of `TINY_VLM_DATA`; a configuration file.

As a program: steps on some mesh of eight devices, the losses as JSON.

    python tests/training/vision_language/tiny_vlm.py DATA '{"fsdp": 8}' ...
"""

import json
import os
import sys
from math import prod
from pathlib import Path

import jax
from ml_collections import ConfigDict

from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.models.qwen_vl.tower import TowerConfig
from tumorchain_jax.parallel.mesh import AXES, make_mesh
from tumorchain_jax.parallel.partition import on_mesh
from tumorchain_jax.training.registry import build_program
from tumorchain_jax.training.vision_language.config import base_config
from tumorchain_jax.training.vision_language.train import build_task

VOCABULARY, STEPS = 320, 5
MODEL = QwenVLConfig(
    TowerConfig(2, 32, 24, 4, 48, 14, 56, (1,)),
    Qwen2Config(VOCABULARY, 48, 64, 2, 4, 2, 12, False, mrope_section=(2, 2, 2)),
)
LIMITS = PictureConfig(min_pixels=784, max_pixels=7056)


def get_config() -> ConfigDict:
    """Trained in full, from random weights."""
    config = base_config(MODEL)
    config.pictures = LIMITS
    config.data.folder = os.environ.get("TINY_VLM_DATA", "")
    config.data.length, config.data.patches = 96, 48
    config.steps, config.batch_size, config.micro_batch_size = STEPS, 4, 4
    config.learning_rate, config.warmup_ratio = 2e-3, 0.0
    config.remat, config.frozen_dtype, config.logits_chunks = "none", "float32", 1
    config.mesh.fsdp = 1
    config.log_every = 1
    return config


def with_lora(config: ConfigDict) -> ConfigDict:
    """LoRA on everything that can have it, the rest frozen."""
    lora = LoRA((r".*_proj", r"tower/(blocks|merger)/.*", "tower/patch_embed"), 3, 6.0)
    config.model = QwenVLConfig(MODEL.tower, MODEL.decoder, lora)
    config.trainable = ((r".*/lora_[ab]", True), (".*", False))
    return config


def losses(folder: str, mesh_sizes: dict[str, int]) -> list[float]:
    """Of all steps on a mesh, with adapters, in two parts if the mesh has `accumulated`."""
    config = with_lora(get_config())
    config.data.folder, config.batch_size = folder, 8
    config.micro_batch_size = mesh_sizes.pop("rows", 8)
    mesh_of = dict.fromkeys(AXES, 1) | mesh_sizes
    mesh = make_mesh(mesh_of, jax.devices()[: prod(mesh_of.values())])
    program = build_program(config, mesh)
    task = build_task(config, Path(folder) / "run", mesh, program)
    with on_mesh(mesh, program.rules):
        state, found, stream = task.initial(), [], task.batches_from(0)
        for _ in range(STEPS):
            state, metrics = program.step(state, next(stream))
            found.append(float(metrics["loss"]))
    return found


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps([losses(sys.argv[1], json.loads(each)) for each in sys.argv[2:]]))
