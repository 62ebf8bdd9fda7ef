"""A small vision-language model for breast ultrasound, from random weights on two CPU cores.

    tumorchain train --config bus_nano_vlm --workdir runs/vlm --config.data.folder=DATA

DATA holds `train.jsonl`, its pictures and a `tokenizer.json` of at most 1,024 ids.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import BUS_NANO_VLM
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import base_config


def get_config() -> ConfigDict:
    """Pictures of at most 224 x 224 pixels: 256 patches, 64 visual tokens."""
    config = base_config(BUS_NANO_VLM)
    config.pictures = PictureConfig(37_632, 50_176, (0.25,) * 3, (0.2,) * 3)
    config.data.patches, config.data.length = 256, 256
    config.steps = 2000
    config.batch_size = config.micro_batch_size = 16
    config.learning_rate = 1e-3
    config.warmup_ratio = 0.05
    config.weight_decay = 0.05
    config.remat = "none"
    config.scan_unroll = 4
    config.logits_chunks = 1
    config.frozen_dtype = "float32"
    config.checkpoint.every, config.checkpoint.minutes = 500, 5.0
    return config
