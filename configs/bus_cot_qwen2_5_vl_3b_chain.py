"""BUS-CoT's Qwen2.5-VL-3B with chains of thought (its Table 2)."""

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_3B
from tumorchain_jax.training.vision_language.config import bus_cot_config


def get_config() -> ConfigDict:
    """Rows whose answers open with a chain of thought."""
    return bus_cot_config(QWEN2_5_VL_3B, "chain.jsonl", length=512)
