"""A small vision-language model for breast ultrasound, from random weights on two CPU cores.

    tumorchain train --config bus_nano_vlm --workdir runs/vlm --config.data.folder=DATA
    tumorchain bus arms --config bus_nano_vlm --data CHAINS --workdir runs/arms

DATA holds `train.jsonl`, its pictures and a `tokenizer.json` of at most 1,024 ids.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import BUS_NANO_VLM
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import base_config


def get_config() -> ConfigDict:
    """Pictures of at most 112 x 112 pixels: 64 patches, 16 visual tokens; two of them a row."""
    config = base_config(BUS_NANO_VLM)
    config.pictures = PictureConfig(9_408, 12_544, (0.25,) * 3, (0.2,) * 3)
    config.data.patches, config.data.length = 128, 288
    config.data.variants = 16
    config.steps = 300
    config.batch_size = config.micro_batch_size = 8
    config.learning_rate = 1e-3
    config.warmup_ratio = 0.05
    config.weight_decay = 0.05
    config.remat = "none"
    config.scan_unroll = 4
    config.logits_chunks = 1
    config.frozen_dtype = "float32"
    config.checkpoint.every, config.checkpoint.minutes = 1000, 5.0
    return config
