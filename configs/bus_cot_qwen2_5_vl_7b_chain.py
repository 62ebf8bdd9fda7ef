"""`bus_cot_qwen2_5_vl_3b_chain` with Qwen2.5-VL-7B, which the paper does not have."""

from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import QWEN2_5_VL_7B
from tumorchain_jax.training.vision_language.config import bus_cot_config


def get_config() -> ConfigDict:
    """Rows whose answers open with a chain of thought."""
    return bus_cot_config(QWEN2_5_VL_7B, "chain.jsonl", length=512)
