"""nano_lens trained on, the encoder too, on other digital patients.

    tumorchain train --config nano_lens_longer --workdir runs/longer --config.data.anatomies=DIR \\
        --config.init=runs/nano_lens/export
"""

from ml_collections import ConfigDict

from tumorchain_jax.core.config import SHIPPED, read_config


def get_config() -> ConfigDict:
    """nano_lens without pretraining; the encoder learns with a tenth of the rate."""
    config = read_config(SHIPPED / "nano_lens.py", ())
    config.data.first_seed = 1_003_000
    config.pretrain.patch_stage.steps = 0
    config.pretrain.scan_stage.steps = 0
    config.steps = 1000
    config.learning_rate = 4e-3
    config.lr_multiplier = ((r"(encoder|projector)/.*", 0.1), (".*", 1.0))
    config.trainable = ((".*", True),)
    return config
