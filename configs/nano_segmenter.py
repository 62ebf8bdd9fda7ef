"""The nano segmenter, trained on realistic phantoms on two CPU cores.

    tumorchain train --config nano_segmenter --workdir runs/nano_segmenter \\
        --config.data.anatomies=DIR

DIR holds label maps to draw from besides the parametric trunk; without it, the trunk alone is used.

Everything it learns from is synthetic (see `tumorchain_jax/phantoms/patient.py`).
"""

from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.training.config import loop_config

# What realistic patients have and voxels of 7 mm can show: organs, lungs, sacrum, vertebrae L5 to
# T5, heart, great and iliac vessels, femurs, hips, spinal cord, muscles, ribs and sternum.
IDS = (
    *(*range(1, 8), *range(10, 16), *range(18, 22), 25, *range(27, 40), 51, 52, *range(63, 69)),
    *(*range(75, 84), *range(86, 90), *range(92, 117)),
)


def get_config() -> ConfigDict:
    """An nnU-Net plan in coarse voxels, small enough for a laptop."""
    config = loop_config()
    config.task = "segmentation"
    config.segmenter = ConfigDict(
        {
            "name": "Dataset901_DigitalPatients",
            "network": UNet3DConfig(
                in_channels=1,
                classes=1 + len(IDS),
                features=(12, 24, 48, 96),
                strides=((1, 1, 1), (2, 2, 2), (2, 2, 2), (2, 2, 2)),
                kernels=((3, 3, 3),) * 4,
                encoder_blocks=(1, 2, 2, 2),
                decoder_convs=(2, 2, 1),
            ),
            "spacing": (7.0, 7.0, 7.0),
            "patch_size": (56, 40, 56),  # most of a phantom
            "labels": tuple(TOTALSEGMENTATOR[id_] for id_ in IDS),
        }
    )
    config.seed = 0

    config.data = ConfigDict({"folder": "", "phantoms": 1200, "first_seed": 1_000_000})
    config.data.phantom_kind = "realistic"
    config.data.anatomies = ""
    config.augmentation = ConfigDict(
        {"turn": 0.1, "stretch": 0.1, "gain": 0.1, "offset": 0.1, "gamma": 0.1, "noise": 0.1}
    )

    config.steps = 2000
    config.batch_size = 1
    config.optimizer = "muon"
    config.learning_rate = 2e-2
    config.warmup_ratio = 0.03
    config.weight_decay = 0.0
    config.clip_norm = 12.0  # nnU-Net's

    config.mesh.data, config.mesh.fsdp = -1, 1
    config.checkpoint.every = 50
    config.checkpoint.minutes = 3.0
    config.lock()
    return config
