"""The configuration of a vision-language training; `configs/bus_*vlm*.py` say what differs."""

from dataclasses import replace

from ml_collections import ConfigDict

from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.training.config import loop_config

TEXT = r"decoder/layers/.*_proj"
TOWER = r"tower/blocks/.*"
MERGER = r"tower/merger/mlp_[02]"
PATCH_EMBEDDING = r"tower/patch_embed"


def base_config(model: QwenVLConfig) -> ConfigDict:
    """Settings that fit a Qwen2.5-VL.

    Fields beside those of `configs/README.md` (whose meaning is the same):
        model: sizes, LoRA and dtype, see `models/qwen_vl/model.py`.
        init: folders that `tumorchain convert import` wrote, separated by commas: the base, with
            `--tower`, and an adapter; or an export of this task; empty for random weights.
        tokenizer: folder with a `tokenizer.json`; empty: that of `init`, or else of the data.
        pictures: how pictures are resized and normalized, see `models/qwen_vl/pictures.py`.
        data.folder: of rows and pictures; `gs://` too.
        data.rows: name of the file of rows in it, see `data/chat_rows.py`.
        data.length: positions of a row: text and visual tokens.
        data.patches: of all pictures of a row together.
        data.variants: of each row in an epoch, its pictures mirrored, zoomed, shifted, lighter or
            darker, see `variants.py`; 1: as they are. For pictures without left and right alone.
        decay: of the learning rate after warm-up: `cosine` or `constant`.
    """
    config = loop_config()
    config.task = "vision_language"
    config.model = model
    config.init = ""
    config.tokenizer = ""
    config.pictures = PictureConfig()
    config.data = ConfigDict(
        {"folder": "", "rows": "train.jsonl", "length": 512, "patches": 484, "variants": 1}
    )
    config.seed = 0
    config.steps = 1000
    config.batch_size = 64
    config.micro_batch_size = 1
    config.optimizer = "adamw"
    config.learning_rate = 1e-5
    config.decay = "cosine"
    config.lr_multiplier = ((".*", 1.0),)
    config.warmup_ratio = 0.03
    config.weight_decay = 0.1
    config.clip_norm = 1.0
    config.trainable = ((".*", True),)
    config.remat = "full"
    config.scan_unroll = 1
    config.attention = "xla"
    config.logits_chunks = 4
    config.frozen_dtype = "bfloat16"
    return config


def lora_config(
    model: QwenVLConfig,
    rank: int,
    alpha: float,
    targets: tuple[str, ...] = (TEXT, TOWER, MERGER, PATCH_EMBEDDING),
) -> ConfigDict:
    """`base_config` with everything frozen but LoRA on some parts; by default on all of them.

    Leaving out `TOWER` and `PATCH_EMBEDDING`, or `MERGER`, is ms-swift's `freeze_vit` or
    `freeze_aligner`.
    """
    config = base_config(replace(model, lora=LoRA(targets, rank, alpha)))
    config.trainable = ((r".*/lora_[ab]", True), (".*", False))
    return config


def bus_cot_config(model: QwenVLConfig, rows: str, length: int) -> ConfigDict:
    """BUS-CoT's trainings (its Table 2): LoRA on all parts, pictures of at most 224 x 224 pixels.

    The paper says rank, alpha, steps, learning rate, 16 GPUs and accumulation of 4; that each GPU
    had one row at once, weight decay and clipping are ours.

    Args:
        rows: name of the file of rows.
        length: positions of a row.
    """
    config = lora_config(replace(model, dtype="bfloat16"), rank=64, alpha=64.0)
    config.pictures = PictureConfig(37_632, 50_176)
    config.data.rows = rows
    config.data.patches, config.data.length = 256, length
    config.steps = 10_000
    config.learning_rate = 5e-5
    config.decay, config.warmup_ratio = "constant", 0.0
    return config
