"""BUS-CoT's Qwen2.5-VL-3B without chains of thought (its Table 2)."""

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_3B
from tumorchain_jax.training.vision_language.config import bus_cot_config


def get_config() -> ConfigDict:
    """Rows of question and answer."""
    return bus_cot_config(QWEN2_5_VL_3B, "direct.jsonl", length=256)
