"""The configuration of a TumorChain training: what configs/*.py start from."""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.training.config import loop_config

TRAINING_RECORDS = 1_348_036
"""90 % of TumorCoT's 1,497,818 records."""
RECORDS_PER_ROW = 6
"""Estimated. A row of 4096 positions holds about 280 of shared prefix, then some 600 a record: 40
for the question, and for each of up to three rounds up to 100 of text and 80 of ROI."""
BATCH_SIZE = 128


def base_config(model: TumorChainConfig) -> ConfigDict:
    """The paper's training (Table 5); what each field means: configs/README.md.

    Clipping, lengths and cadence, of which the paper says nothing, are ours.
    """
    config = loop_config()
    config.model = model
    config.window = ConfigDict({"level": 40.0, "width": 400.0})
    config.history = "all"
    config.initial_roi = False
    config.cot = True
    config.iir = True
    config.seed = 0
    config.init = ""
    config.data = ConfigDict({"folder": "", "phantoms": 0, "first_seed": 0, "length": 4096})
    config.data.phantom_kind = "simple"
    config.data.anatomies = ""
    # M3D's encoder comes pretrained.
    config.pretrain = ConfigDict(
        {"folder": "", "patch_stage": {"steps": 0}, "scan_stage": {"steps": 0}}
    )
    config.pretrain.auxiliary = ConfigDict({"segment": 0.0, "content": 0.0})
    config.pretrain.curriculum = ConfigDict({"share": 0.0, "from_mm": 40.0, "to_mm": 8.0})
    config.steps = TRAINING_RECORDS // (RECORDS_PER_ROW * BATCH_SIZE)  # one epoch
    config.batch_size = BATCH_SIZE
    config.micro_batch_size = 2
    config.optimizer = "adamw"
    config.learning_rate = 3e-5
    config.lr_multiplier = ((".*", 1.0),)
    config.warmup_ratio = 0.03
    config.weight_decay = 0.0
    config.clip_norm = 1.0
    config.alpha = 1.0
    config.trainable = ((".*", True),)
    config.unfreeze_encoder = ConfigDict({"start": 0.75, "lr_factor": 0.0})
    config.remat = "full"
    config.scan_unroll = 1
    config.attention = "xla"
    config.logits_chunks = 4
    config.frozen_dtype = "bfloat16"
    config.lock()
    return config


def lora_config(model: TumorChainConfig) -> ConfigDict:
    """`base_config` with the decoder frozen and LoRA on all of its projections.

    Encoder, projector and classifier are trained in full. Rank, scale and learning rate, of which
    the paper says nothing, are ours.
    """
    targets = (r"decoder/.*/(q|k|v|o|gate|up|down)_proj",)
    config = base_config(replace(model, lora=LoRA(targets, rank=16, alpha=32.0)))
    config.trainable = ((r".*/lora_[ab]", True), ("decoder/.*", False), (".*", True))
    config.learning_rate = 1e-4
    return config
