"""BUS-CoT's resnet50 (Table 2): timm's weights, imported with `--drop-head`, fine-tuned.

    tumorchain convert import -i resnet50.a1_in1k -o resnet50 --drop-head
    tumorchain bus crossval --config bus_cot_resnet50 --data bus --workdir runs/resnet50 \\
        --config.init=resnet50
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The paper's settings are those of `base_config`."""
    return base_config(ResNetConfig((3, 4, 6, 3), classes=2))
