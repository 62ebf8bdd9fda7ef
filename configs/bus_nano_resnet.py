"""A small ResNet for breast ultrasound, from random weights on two CPU cores.

tumorchain bus prepare -i BUS-BRA BREAST BUSI -o bus
tumorchain bus crossval --config bus_nano_resnet --data bus --workdir runs/bus
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """Four stages of one block, 72 pixels."""
    config = base_config(ResNetConfig((1, 1, 1, 1), width=16, channels=1, classes=2))
    config.data.side = 72
    config.steps = 1200
    config.batch_size = 16
    config.learning_rate = 2e-3
    config.weight_decay = 0.05
    config.warmup_ratio = 0.05
    config.label_smoothing = 0.05
    config.mean, config.std = (0.25,), (0.2,)
    # The lesion's aspect tells much: little stretching.
    config.augmentation.update(turn=0.1, stretch=0.05, shift=0.05, gain=0.1, gamma=0.1)
    return config
