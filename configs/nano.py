"""The nano model, trained on phantoms on two CPU cores.

    tumorchain train --config nano --workdir runs/nano

Everything it learns from is synthetic (see `tumorchain_jax/phantoms/patient.py`).
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import NANO
from tumorchain_jax.training.tumorchain.config import base_config


def get_config() -> ConfigDict:
    """Hyperparameters as in the paper's Table 5 but for size, steps and learning rate."""
    config = base_config(NANO)
    config.data.phantoms = 4000
    config.data.first_seed = 1_000_000
    config.data.length = 768

    with config.unlocked():
        config.pretrain.patch_stage.update(
            steps=6000, crops_per_scan=3, patches_per_batch=1024, learning_rate=2e-2
        )
        config.pretrain.scan_stage.update(steps=600, scans=8, learning_rate=8e-3)

    config.steps = 1200
    config.batch_size = 8
    config.micro_batch_size = 8
    config.optimizer = "muon"  # from random weights; to adapt a pretrained model: adamw
    config.learning_rate = 8e-3
    config.lr_multiplier = ((r"projector/.*", 0.1), (".*", 1.0))
    # The encoder is pretrained and frozen: the others learn to read it.
    config.trainable = ((r"encoder/.*", False), (".*", True))

    config.remat = "none"
    config.scan_unroll = 4
    config.logits_chunks = 1
    config.frozen_dtype = "float32"
    config.checkpoint.every = 200
    config.checkpoint.minutes = 0.0
    return config
