"""USFM's encoder (BEiT, ViT-B/16) as a second family of baseline: imported, with a new head.

tumorchain convert import -i USFM_latest.pth -o usfm
tumorchain bus crossval --config bust_usfm --data bus --workdir runs/usfm --seeds 0 1 2 \\
    --config.init=usfm

Its weights (CC-BY-NC) are not given here; without `--config.init` it starts from random ones.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.image.beit.model import BeitConfig
from tumorchain_jax.training.classification.config import base_config


def get_config() -> ConfigDict:
    """The settings are those of BUS-CoT's classifiers; one table of positions for all blocks."""
    return base_config(BeitConfig(classes=2, shared_positions=True))
