"""BUS-CoT's Qwen2.5-VL-3B without chains of thought (its Table 2): LoRA on all parts.

The paper says rank, alpha, steps, learning rate, 16 GPUs and accumulation of 4; that each GPU had
one row at once, weight decay and clipping are ours.
"""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_3B
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import lora_config


def get_config() -> ConfigDict:
    """Rows of question and answer, pictures of at most 224 x 224 pixels."""
    config = lora_config(replace(QWEN2_5_VL_3B, dtype="bfloat16"), rank=64, alpha=64.0)
    config.pictures = PictureConfig(37_632, 50_176)
    config.data.rows = "direct.jsonl"
    config.data.patches, config.data.length = 256, 256
    config.steps = 10_000
    config.batch_size = 64
    config.learning_rate = 5e-5
    config.decay, config.warmup_ratio = "constant", 0.0
    return config
