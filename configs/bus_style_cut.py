"""CUT from one ultrasound device of BUS-BRA to another, small, on two CPU cores.

tumorchain bus prepare -i BUS-BRA BREAST BUSI -o bus
tumorchain train --config bus_style_cut --workdir runs/style --config.data.folder=bus
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.translation.model import TranslationConfig
from tumorchain_jax.training.translation.config import base_config


def get_config() -> ConfigDict:
    """Logiq 7 to Logiq 5, 64 pixels, 6 blocks."""
    config = base_config("cut", TranslationConfig(16, 6, 16))
    config.steps = 1500
    return config
