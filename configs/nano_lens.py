"""nano with a second look through a lens: crops around six regions at 3 mm, ranked by evidence.

    tumorchain train --config nano_lens --workdir runs/nano_lens --config.data.anatomies=DIR

DIR holds label maps to draw from besides the parametric trunk; without it, the trunk alone is used.
"""

from ml_collections import ConfigDict

from tumorchain_jax.core.config import SHIPPED, read_config
from tumorchain_jax.models.tumorchain.model import NANO_LENS


def get_config() -> ConfigDict:
    """nano's training with the other model, longer, on digital patients of all kinds."""
    config = read_config(SHIPPED / "nano.py", ())
    config.model = NANO_LENS
    config.data.phantom_kind = "mixed"
    config.data.phantoms = 3000
    config.pretrain.auxiliary.update(segment=1.0, content=1.0)
    config.steps = 2400
    return config
