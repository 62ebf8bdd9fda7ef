"""BUS-CoT's Qwen2.5-VL-3B as its released script trains it, which is not as the paper says.

Rank 16, 4,000 steps of one row on each of 8 GPUs (more nodes: a larger batch), larger pictures.
"""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_3B
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import lora_config


def get_config() -> ConfigDict:
    """Rows of at most 2,048 positions, pictures of 100 to 121 visual tokens."""
    config = lora_config(replace(QWEN2_5_VL_3B, dtype="bfloat16"), rank=16, alpha=16.0)
    config.pictures = PictureConfig(78_400, 94_864)
    config.data.rows = "chain.jsonl"
    config.data.patches, config.data.length = 484, 2048
    config.steps = 4000
    config.batch_size = 8
    config.learning_rate = 1e-4
    config.warmup_ratio = 0.1
    config.seed = 50
    return config
