"""TumorChain-3B as the paper trains it (Table 5): M3D-CLIP encoder, Qwen2.5 3B decoder.

    tumorchain convert import -i QWEN -o runs/qwen      # Qwen2.5-VL-3B's folder
    tumorchain convert import -i M3D_CLIP -o runs/m3d
    tumorchain train --config configs/tumorchain_3b.py --workdir runs/3b \\
        --config.data.folder=DATA --config.init=runs/qwen,runs/m3d

Weights, gradient and AdamW's moments take 51 GB in float32, over all devices together; the paper
used 32. `tumorchain compile` tells whether it fits a machine. Without `init` it starts from random
weights. DATA is a TumorCoT data set with Qwen's tokenizer.
"""

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import TUMORCHAIN_3B

TRAINING_RECORDS = 1_348_036  # 90 % of TumorCoT's 1,497,818; set `steps` for another data set
RECORDS_PER_ROW = 6  # estimated: see `length`


def get_config() -> ConfigDict:
    """Table 5; clipping, lengths and cadence, of which the paper says nothing, are ours."""
    config = ConfigDict()
    config.model = TUMORCHAIN_3B  # computes in bfloat16
    config.window = ConfigDict({"level": 40.0, "width": 400.0})
    config.history = "all"
    config.initial_roi = False
    config.cot = True  # false: the paper's ablation without chains of thought
    config.iir = True  # false: its ablation without looking at organs again
    config.seed = 0
    config.init = ""  # an exported checkpoint, or imported folders with commas between

    config.data = ConfigDict()
    config.data.folder = ""
    config.data.phantoms = 0
    config.data.first_seed = 0
    # About 280 positions of shared prefix, then some 600 a record: 40 for the question, and for
    # each of up to three rounds up to 100 of words and 80 of ROI.
    config.data.length = 4096

    # No lessons of its own: M3D's encoder comes pretrained.
    config.pretrain = ConfigDict(
        {"folder": "", "patch_stage": {"steps": 0}, "scan_stage": {"steps": 0}}
    )

    config.batch_size = 128  # rows
    config.micro_batch_size = 2  # at once; the rest of a batch is accumulated
    config.steps = TRAINING_RECORDS // (RECORDS_PER_ROW * config.batch_size)  # one epoch
    config.optimizer = "adamw"
    config.learning_rate = 3e-5
    config.lr_multiplier = ((".*", 1.0),)
    config.warmup_ratio = 0.03
    config.weight_decay = 0.0
    config.clip_norm = 1.0
    config.alpha = 1.0
    config.trainable = ((".*", True),)

    # Sizes of the mesh; -1 takes the devices that are left. What lies where on it is told in
    # `tumorchain_jax/parallel/partition.py`.
    config.mesh = ConfigDict({"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1})
    config.remat = "full"  # what the backward pass makes anew: none, dots, full
    config.scan_unroll = 1  # layers in one turn of the scan: more are faster on CPUs
    config.attention = "xla"  # the kernel; splash for TPUs, cudnn for NVIDIA GPUs
    config.logits_chunks = 4  # the logits of a row are made in so many parts
    config.frozen_dtype = "bfloat16"  # of what is not trained

    config.log_every = 10
    # Saved after so many steps, and so many minutes (0: by steps alone). Kept: the newest, and that
    # with the best mean since the one before, which is the least of a loss and the most of others.
    config.checkpoint = ConfigDict({"every": 1000, "minutes": 30.0, "keep": 2, "best": "loss"})
    # A trace of the steps FIRST:LAST; a project of Weights & Biases; after how many seconds without
    # progress the processes that are late are named (0: never).
    config.watch = ConfigDict({"profile": "", "wandb": "", "hang_timeout_s": 600.0})
    config.lock()
    return config
