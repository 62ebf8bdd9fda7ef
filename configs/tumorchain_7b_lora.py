"""`tumorchain_7b` with the decoder frozen and LoRA on all of its projections.

Encoder, projector and classifier are trained in full, as there. `tumorchain convert export` makes a
PEFT adapter of what was learned, or merges it into the decoder.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import TUMORCHAIN_7B
from tumorchain_jax.training.tumorchain.config import lora_config


def get_config() -> ConfigDict:
    """Adapters of rank 16."""
    return lora_config(TUMORCHAIN_7B)
