"""BUS-CoT's Qwen2.5-VL-3B with chains of thought (its Table 2): `..._direct` on other rows."""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_3B
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.vision_language.config import lora_config


def get_config() -> ConfigDict:
    """Rows whose answers open with a chain of thought."""
    config = lora_config(replace(QWEN2_5_VL_3B, dtype="bfloat16"), rank=64, alpha=64.0)
    config.pictures = PictureConfig(37_632, 50_176)
    config.data.rows = "chain.jsonl"
    config.data.patches, config.data.length = 256, 512
    config.steps = 10_000
    config.batch_size = 64
    config.learning_rate = 5e-5
    config.decay, config.warmup_ratio = "constant", 0.0
    return config
