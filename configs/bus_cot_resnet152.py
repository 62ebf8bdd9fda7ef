"""BUS-CoT's resnet152 (Table 2): timm's weights, imported with `--drop-head`, fine-tuned.

    tumorchain convert import -i resnet152.a1_in1k -o resnet152 --drop-head
    tumorchain bus crossval --config bus_cot_resnet152 --data bus --workdir runs/resnet152 \\
        --config.init=resnet152
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The paper's settings are those of `base_config`."""
    return base_config(ResNetConfig((3, 8, 36, 3), classes=2))
