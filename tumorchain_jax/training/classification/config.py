"""The configuration that every image classifier has; `configs/bus_*.py` say what differs."""

from ml_collections import ConfigDict

from tumorchain_jax.models.families import ImageConfig
from tumorchain_jax.training.config import loop_config


def base_config(model: ImageConfig) -> ConfigDict:
    """Settings of BUS-CoT's classifiers (its Table 2): AdamW, cosine, 5 epochs, 224 pixels.

    Fields:
        model: an image classifier of any family.
        init: folder of `tumorchain convert import`, whose head may be missing; empty for random
            weights.
        data.folder: of `tumorchain bus prepare`.
        data.view, data.side: what the model sees (`ultrasound/view.py`), in pixels.
        data.sources: only these data sets, separated by commas; empty for all.
        data.held_out: a data set that is not trained on.
        data.device: only pictures of devices whose name has this in it; empty for all.
        data.style: half of the pictures get the look of others, see `ultrasound/style.py`; empty
            for none. The others are those of the development part that are not trained on for
            their set or device; their labels are not used. Without any, those trained on.
        data.folds, data.fold, data.fold_seed: train on all folds but this; -1 for all of the
            development part. The test part is never trained on.
        data.cache: folder for rendered pictures, which runs may share; empty: in the workdir.
        mask_weight: of the lesion's mask in the loss, for a model that predicts it; 0 for none.
            Only training needs masks.
        class_weights: weigh each class by the inverse of its share.
        label_smoothing: share of the truth that goes to all classes alike.
        mean, std: of grey values from 0 to 1, as the model's pretraining had them.
        augmentation: see `augmentation.py`.
    """
    config = loop_config()
    config.task = "classification"
    config.model = model
    config.init = ""
    config.seed = 0
    config.data = ConfigDict(
        {
            "folder": "",
            "view": "image",
            "side": 224,
            "sources": "",
            "held_out": "",
            "device": "",
            "style": "",
            "folds": 5,
            "fold": -1,
            "fold_seed": 0,
            "cache": "",
        }
    )
    config.steps = 1190  # 5 epochs of the 3,804 lesions that four of five folds have
    config.batch_size = 16
    config.optimizer = "adamw"
    config.learning_rate = 5e-5
    config.warmup_ratio = 0.0
    config.weight_decay = 0.1
    config.clip_norm = 1.0
    config.mask_weight = 0.0
    config.class_weights = False
    config.label_smoothing = 0.0
    config.drop_path = 0.0
    config.dtype = "float32"
    config.remat = "none"
    config.mean, config.std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    config.augmentation = ConfigDict(
        {
            "flip": True,
            "turn": 0.0,
            "zoom": 0.0,
            "stretch": 0.0,
            "shift": 0.0,
            "gain": 0.0,
            "gamma": 0.0,
        }
    )
    config.checkpoint.every, config.checkpoint.minutes = 100_000, 5.0
    return config
