"""The ablations on nano with crops, as long as the nano in the package was trained at first.

    tumorchain experiments --config experiments_lens --workdir runs/lens --config.data.anatomies=DIR

Runs `full`, `without-iir`, `without-cot`, `without-both` (see `experiments.py`) and `without-lens`,
the same model without crops, with three seeds each: 15 trainings of about an hour on two CPU cores.
All share the patients of training and test, of all kinds, and the pretrained encoder, but
`without-lens`, whose encoder is pretrained without crops.
"""

from ml_collections import ConfigDict

from tumorchain_jax.core.config import SHIPPED, read_config


def get_config() -> ConfigDict:
    """`nano_lens` with the fields of experiments."""
    config = read_config(SHIPPED / "nano_lens.py", ())
    experiments = read_config(SHIPPED / "experiments.py", ())
    with config.unlocked():
        for field in ("seeds", "test", "adaptation"):
            config[field] = experiments[field]
    return config
