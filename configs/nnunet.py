"""nnU-Net's full network on a CT, as it is widely planned: 128 voxels cubed, six stages.

    tumorchain compile --config nnunet --program segment --target v5e-1 --batch 1

A real model's sizes are read from its own plans.json. The classes are those of
the first part of TotalSegmentator's `total`.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.unet3d.model import UNet3DConfig

THREE = (3, 3, 3)


def get_config() -> ConfigDict:
    """The sizes that a segmenter is compiled for."""
    config = ConfigDict()
    config.task = "segmentation"
    config.segmenter = ConfigDict(
        {
            "network": UNet3DConfig(
                in_channels=1,
                classes=25,
                features=(32, 64, 128, 256, 320, 320),
                strides=((1, 1, 1), *((2, 2, 2),) * 5),
                kernels=(THREE,) * 6,
                encoder_blocks=(2,) * 6,
                decoder_convs=(2,) * 5,
            ),
            "patch_size": (128, 128, 128),
            "dtype": "bfloat16",
        }
    )
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1})
    config.lock()
    return config
