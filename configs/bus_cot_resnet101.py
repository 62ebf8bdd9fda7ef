"""BUS-CoT's resnet101 (Table 2): timm's weights, imported with `--drop-head`, fine-tuned.

    tumorchain convert import -i resnet101.a1_in1k -o resnet101 --drop-head
    tumorchain bus crossval --config bus_cot_resnet101 --data bus --workdir runs/resnet101 \\
        --config.init=resnet101
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The paper's settings are those of `base_config`."""
    return base_config(ResNetConfig((3, 4, 23, 3), classes=2))
