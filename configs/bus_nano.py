"""The shipped classifier of breast ultrasound: finds the lesion, and classifies by what it finds.

tumorchain bus prepare -i BUS-BRA BREAST BUSI -o bus
tumorchain bus crossval --config bus_nano --data bus --workdir runs/bus
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.pyramid.model import PyramidConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """A ResNet of four blocks at 72 pixels, which also learns the lesion's mask."""
    config = base_config(PyramidConfig())
    config.data.side = 72
    config.steps = 700
    config.batch_size = 16
    config.learning_rate = 2e-3
    config.weight_decay = 0.05
    config.warmup_ratio = 0.05
    config.label_smoothing = 0.05
    config.mask_weight = 1.0
    config.mean, config.std = (0.25,), (0.2,)
    # The lesion's aspect tells much: little stretching.
    config.augmentation.update(zoom=0.1, stretch=0.05, shift=0.08, gain=0.2, gamma=0.2)
    return config
