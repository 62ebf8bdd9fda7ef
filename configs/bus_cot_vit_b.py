"""BUS-CoT's ViT-B (Table 2): timm's weights, imported with `--drop-head`, fine-tuned.

The paper pools by the mean; timm's weights for that have `fc_norm`, others the norm of all tokens.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.vit.model import ViTConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The paper's settings are those of `base_config`, but for timm's own mean and deviation."""
    config = base_config(ViTConfig((224, 224), 16, 768, 3072, 12, 12, classes=2, pool="avg"))
    config.mean = config.std = (0.5, 0.5, 0.5)
    return config
