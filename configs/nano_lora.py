"""LoRA fine-tuning of the shipped nano model on your own scans (`tumorchain prepare`).

    tumorchain train --config nano_lora --workdir runs/lora --config.data.folder=DATA

DATA has nano's tokenizer: `prepare --tokenizer tumorchain_jax/pretrained/nano`.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import NANO_LENS
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.training.tumorchain.config import lora_config


def get_config() -> ConfigDict:
    """Adapters of rank 16 on the decoder; all else is frozen."""
    config = lora_config(NANO_LENS)
    config.init = str(NANO_CHECKPOINT)
    config.data.length = 768
    config.trainable = ((r".*/lora_[ab]", True), (".*", False))
    config.steps = 100
    config.batch_size = 2
    config.learning_rate = 1e-3
    config.remat = "none"
    config.logits_chunks = 1
    config.frozen_dtype = "float32"
    config.checkpoint.every = 50
    return config
