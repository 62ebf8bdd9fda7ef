"""`bus_cot_qwen2_5_vl_3b_chain` with Qwen2.5-VL-7B, which the paper does not have."""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_7B
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import lora_config


def get_config() -> ConfigDict:
    """Rows whose answers open with a chain of thought."""
    config = lora_config(replace(QWEN2_5_VL_7B, dtype="bfloat16"), rank=64, alpha=64.0)
    config.pictures = PictureConfig(37_632, 50_176)
    config.data.rows = "chain.jsonl"
    config.data.patches, config.data.length = 256, 512
    config.steps = 10_000
    config.batch_size = 64
    config.learning_rate = 5e-5
    config.decay, config.warmup_ratio = "constant", 0.0
    return config
