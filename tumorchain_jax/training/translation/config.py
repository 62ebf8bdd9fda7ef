"""The configuration of a translation; `configs/bus_style_*.py` say what differs."""

from typing import Literal

from ml_collections import ConfigDict

from tumorchain_jax.models.translation.model import TranslationConfig
from tumorchain_jax.training.config import loop_config


def base_config(method: Literal["cyclegan", "cut"], model: TranslationConfig) -> ConfigDict:
    """Settings of the papers: Adam at 2e-4, halfway constant and then linear to zero, batch 1.

    Fields:
        method: `cyclegan`: both ways, with cycle and identity; `cut`: one way, contrasting places.
        model: sizes of the networks.
        data.folder: of `tumorchain bus prepare`.
        data.a, data.b: the two looks: the beginning of a device's name or a data set's.
        data.view, data.side: what is translated (`ultrasound/view.py`), in pixels.
        data.folds, data.fold, data.fold_seed: train on all folds but this, which is what is
            measured. The test part is never trained on.
        data.cache: folder for rendered pictures.
        pool: earlier translations that CycleGAN's discriminators may see again.
        cycle_weight, identity_weight: of CycleGAN.
        nce_weight, nce_places: of CUT, and places of a layer that are contrasted.
    """
    config = loop_config()
    config.task = "translation"
    config.method = method
    config.model = model
    config.seed = 0
    config.data = ConfigDict(
        {
            "folder": "",
            "a": "GE Logiq 7",
            "b": "GE Logiq 5",
            "view": "image",
            "side": 64,
            "sources": "",
            "held_out": "",
            "folds": 3,
            "fold": 0,
            "fold_seed": 0,
            "cache": "",
        }
    )
    config.steps = 20_000
    config.batch_size = 1
    config.optimizer = "adamw"
    config.learning_rate = 2e-4
    config.warmup_ratio = 0.0
    config.weight_decay = 0.0
    config.clip_norm = 1e6
    config.pool = 50
    config.cycle_weight, config.identity_weight = 10.0, 5.0
    config.nce_weight, config.nce_places = 1.0, 256
    config.checkpoint.every, config.checkpoint.minutes = 100_000, 5.0
    return config
