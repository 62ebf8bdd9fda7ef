"""TumorChain-3B as the paper trains it (Table 5): M3D-CLIP encoder, Qwen2.5 3B decoder.

    tumorchain convert import -i QWEN -o runs/qwen      # Qwen2.5-VL-3B's folder
    tumorchain convert import -i M3D_CLIP -o runs/m3d
    tumorchain train --config tumorchain_3b --workdir runs/3b \\
        --config.data.folder=DATA --config.init=runs/qwen,runs/m3d

Weights, gradient and AdamW's moments take 51 GB in float32, over all devices together; the paper
used 32. `tumorchain compile` tells whether it fits a machine. Without `init` it starts from random
weights. DATA is a TumorCoT data set with Qwen's tokenizer.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import TUMORCHAIN_3B
from tumorchain_jax.training.tumorchain.config import base_config


def get_config() -> ConfigDict:
    """The paper's training; it computes in bfloat16."""
    return base_config(TUMORCHAIN_3B)
