"""The nano model, trained on digital patients on two CPU cores.

    tumorchain train --config configs/nano.py --workdir runs/nano

Everything it learns from is synthetic (see `tumorchain_jax/phantoms/patient.py`).
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import NANO


def get_config() -> ConfigDict:
    """Hyperparameters as in the paper's Table 5 but for size, steps and learning rate."""
    config = ConfigDict()
    config.model = NANO
    config.window = ConfigDict({"level": 40.0, "width": 400.0})
    config.history = "all"
    config.initial_roi = False
    config.cot = True  # false: the paper's ablation without chains of thought
    config.iir = True  # false: its ablation without looking at organs again
    config.seed = 0
    config.init = ""  # an exported checkpoint, or imported folders with commas between

    config.data = ConfigDict()
    config.data.folder = ""  # empty: WORKDIR/data
    config.data.phantoms = 4000  # made on the first run; 0 takes the folder as it is
    config.data.first_seed = 1_000_000
    config.data.length = 768

    # Encoder pretraining (training/pretraining); 0 steps: start from a random encoder.
    config.pretrain = ConfigDict(
        {
            "folder": "",
            "patch_stage": {
                "steps": 6000,
                "crops_per_scan": 3,
                "patches_per_batch": 1024,
                "learning_rate": 2e-2,
            },
            "scan_stage": {"steps": 600, "scans": 8, "learning_rate": 8e-3},
        }
    )

    config.steps = 1200
    config.batch_size = 8
    config.micro_batch_size = 8  # at once; the rest of a batch is accumulated
    config.optimizer = "muon"  # from random weights; to adapt a pretrained model: adamw
    config.learning_rate = 8e-3
    config.lr_multiplier = ((r"projector/.*", 0.1), (".*", 1.0))
    config.warmup_ratio = 0.03
    config.weight_decay = 0.0
    config.clip_norm = 1.0
    config.alpha = 1.0
    # The encoder has had its lessons: the others learn to read it.
    config.trainable = ((r"encoder/.*", False), (".*", True))

    # Sizes of the mesh; -1 takes the devices that are left. What lies where on it is told in
    # `tumorchain_jax/parallel/partition.py`.
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1})
    config.remat = "none"  # what the backward pass makes anew: none, dots, full
    config.scan_unroll = 4  # layers in one turn of the scan: more are faster on CPUs
    config.attention = "xla"  # the kernel; splash for TPUs, cudnn for NVIDIA GPUs
    config.logits_chunks = 1  # the logits of a row are made in so many parts
    config.frozen_dtype = "float32"  # of what is not trained

    config.log_every = 10
    # Saved after so many steps, and so many minutes (0: by steps alone). Kept: the newest, and that
    # with the best mean since the one before, which is the least of a loss and the most of others.
    config.checkpoint = ConfigDict({"every": 200, "minutes": 0.0, "keep": 2, "best": "loss"})
    # A trace of the steps FIRST:LAST; a project of Weights & Biases; after how many seconds without
    # progress the processes that are late are named (0: never).
    config.watch = ConfigDict({"profile": "", "wandb": "", "hang_timeout_s": 600.0})
    config.lock()
    return config
