"""nano with a second look through a lens: crops around six regions at 3 mm, ranked by evidence.

tumorchain train --config nano_lens --workdir runs/nano_lens
"""

from ml_collections import ConfigDict

from tumorchain_jax.core.config import SHIPPED, read_config
from tumorchain_jax.models.tumorchain.model import NANO_LENS


def get_config() -> ConfigDict:
    """nano's training with the other model."""
    config = read_config(SHIPPED / "nano.py", ())
    config.model = NANO_LENS
    config.pretrain.auxiliary.update(segment=1.0, content=1.0)
    return config
