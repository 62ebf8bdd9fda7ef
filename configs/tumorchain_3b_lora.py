"""`configs/tumorchain_3b.py` with the decoder at rest and adapters on all of its projections.

Encoder, projector and classifier are trained whole, as there. `tumorchain convert export` makes a
PEFT adapter of what was learned, or folds it into the decoder.
"""

import runpy
from dataclasses import replace
from pathlib import Path

from ml_collections import ConfigDict

from tumorchain_jax.models.layers.linear import LoRA

ADAPTERS = LoRA((r"decoder/.*/(q|k|v|o|gate|up|down)_proj",), rank=16, alpha=32.0)


def get_config() -> ConfigDict:
    """Rank, scale and learning rate, of which the paper says nothing, are ours."""
    config = runpy.run_path(str(Path(__file__).with_name("tumorchain_3b.py")))["get_config"]()
    config.unlock()
    config.model = replace(config.model, lora=ADAPTERS)
    config.trainable = ((r".*/lora_[ab]", True), ("decoder/.*", False), (".*", True))
    config.learning_rate = 1e-4
    config.lock()
    return config
