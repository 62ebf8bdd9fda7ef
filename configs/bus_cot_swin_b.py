"""BUS-CoT's Swin-B (Table 2): timm's weights, imported with `--drop-head`, fine-tuned."""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.swin.model import SwinConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The paper's settings are those of `base_config`."""
    return base_config(SwinConfig(hidden_size=128, num_heads=(4, 8, 16, 32), classes=2))
