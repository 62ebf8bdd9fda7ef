"""A small vision transformer for breast ultrasound, from random weights on two CPU cores.

Beside `bus_nano_resnet`: without pretraining a transformer needs more pictures than there are.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.vit.model import ViTConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """Four blocks over patches of 12 pixels, 96 pixels."""
    config = base_config(ViTConfig((96, 96), 12, 96, 384, 4, 4, channels=1, classes=2, pool="avg"))
    config.data.side = 96
    config.steps = 700
    config.batch_size = 16
    config.learning_rate = 1e-3
    config.warmup_ratio = 0.1
    config.label_smoothing = 0.05
    config.mean, config.std = (0.25,), (0.2,)
    config.augmentation.update(turn=0.2, stretch=0.15, shift=0.08, gain=0.15, gamma=0.2)
    return config
