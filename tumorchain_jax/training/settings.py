"""Refuse configuration values that no training can run with, before anything is read or made."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.attention import KERNELS
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.tumorchain.roi_spec import RoiRank
from tumorchain_jax.reasoning.crops import region_labels
from tumorchain_jax.reasoning.prompt import History
from tumorchain_jax.training.optimizer import Decay
from tumorchain_jax.ultrasound.view import VIEWS

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Number:
    """A finite number from `least` to `most`; of type int if `whole`; not `least` if `above`."""

    least: int | float
    most: int | float = math.inf
    whole: bool = False
    above: bool = False

    @property
    def expected(self) -> str:
        """The allowed values, for people."""
        kind = "a whole number" if self.whole else "a finite number"
        if self.least == -math.inf:
            return kind
        if self.most < math.inf:
            return f"{kind} from {self.least:g} to {self.most:g}"
        return f"{kind} {'above' if self.above else 'of at least'} {self.least:g}"

    def accepts(self, value: Any) -> bool:
        """Whether a value is allowed."""
        if not (type(value) is int or (type(value) is float and not self.whole)):
            return False
        above = value > self.least if self.above else value >= self.least
        return math.isfinite(value) and above and value <= self.most


@dataclass(frozen=True)
class Choice:
    """One of a few values, of the same type."""

    options: tuple[Any, ...]

    @property
    def expected(self) -> str:
        """The allowed values, for people."""
        return " or ".join(str(option).lower() for option in self.options)

    def accepts(self, value: Any) -> bool:
        """Whether a value is allowed."""
        return any(type(value) is type(option) and value == option for option in self.options)


@dataclass(frozen=True)
class PathRules:
    """Pairs of a regex over parameter paths and a value."""

    value: Number | Choice

    @property
    def expected(self) -> str:
        """The allowed values, for people."""
        return f"pairs (regex over parameter paths, {self.value.expected})"

    def accepts(self, value: Any) -> bool:
        """Whether a value is allowed."""
        try:
            return all(re.compile(regex) and self.value.accepts(own) for regex, own in value)
        except (TypeError, ValueError, re.error):
            return False


Rule = Number | Choice | PathRules
POSITIVE, COUNT = Number(1, whole=True), Number(0, whole=True)
RATE, NOT_NEGATIVE = Number(0, above=True), Number(0)
SEED, FLAG = Number(0, 2**32 - 1, whole=True), Choice((True, False))

COMMON: Mapping[str, Rule] = {
    "seed": SEED,
    "steps": POSITIVE,
    "batch_size": POSITIVE,
    "optimizer": Choice(("adamw", "muon")),
    "learning_rate": RATE,
    "warmup_ratio": Number(0, 1),
    "weight_decay": NOT_NEGATIVE,
    "clip_norm": RATE,
    "log_every": POSITIVE,
    "checkpoint.every": POSITIVE,
    "checkpoint.minutes": NOT_NEGATIVE,
    "checkpoint.keep": POSITIVE,
    "watch.hang_timeout_s": NOT_NEGATIVE,
}
PHANTOMS: Mapping[str, Rule] = {"data.phantoms": COUNT, "data.first_seed": COUNT}
TUMORCHAIN: Mapping[str, Rule] = {
    **PHANTOMS,
    "window.level": Number(-math.inf),
    "window.width": RATE,
    "history": Choice(get_args(History)),
    "initial_roi": FLAG,
    "cot": FLAG,
    "iir": FLAG,
    "data.length": POSITIVE,
    "micro_batch_size": POSITIVE,
    "lr_multiplier": PathRules(NOT_NEGATIVE),
    "alpha": NOT_NEGATIVE,
    "trainable": PathRules(FLAG),
    "remat": Choice(get_args(Remat)),
    "scan_unroll": POSITIVE,
    "attention": Choice(KERNELS),
    "logits_chunks": POSITIVE,
    "frozen_dtype": Choice(DTYPES),
    "model.dtype": Choice(DTYPES),
    "model.roi_slots": POSITIVE,
    "model.roi_source": Choice(("encoder", "global", "crop")),
    "model.roi_rank": Choice(get_args(RoiRank)),
    "model.global_pool": POSITIVE,
    "pretrain.patch_stage.steps": COUNT,
    "pretrain.scan_stage.steps": COUNT,
    "pretrain.auxiliary.segment": NOT_NEGATIVE,
    "pretrain.auxiliary.content": NOT_NEGATIVE,
    "pretrain.curriculum.share": Number(0, 1),
    "pretrain.curriculum.from_mm": NOT_NEGATIVE,
    "pretrain.curriculum.to_mm": NOT_NEGATIVE,
    "unfreeze_encoder.start": Number(0, 1),
    "unfreeze_encoder.lr_factor": NOT_NEGATIVE,
}
SEGMENTER: Mapping[str, Rule] = {
    **PHANTOMS,
    **{
        f"augmentation.{name}": NOT_NEGATIVE
        for name in ("turn", "stretch", "gain", "offset", "gamma", "noise")
    },
}
CLASSIFIER: Mapping[str, Rule] = {
    "data.view": Choice(VIEWS),
    "data.side": POSITIVE,
    "data.fold_seed": SEED,
    "class_weights": FLAG,
    "label_smoothing": Number(0, 1),
    "drop_path": Number(0, 0.99),
    "dtype": Choice(DTYPES),
    "remat": Choice(get_args(Remat)),
    "augmentation.flip": FLAG,
    **{
        f"augmentation.{name}": NOT_NEGATIVE
        for name in ("turn", "stretch", "shift", "gain", "gamma")
    },
}
TRANSLATION: Mapping[str, Rule] = {
    "method": Choice(("cyclegan", "cut")),
    "data.view": Choice(VIEWS),
    "data.side": Number(24, whole=True),  # less leaves the discriminator no patch
    "data.fold_seed": SEED,
    "pool": POSITIVE,
    "cycle_weight": NOT_NEGATIVE,
    "identity_weight": NOT_NEGATIVE,
    "nce_weight": NOT_NEGATIVE,
    "nce_places": Number(2, whole=True),
    "model.width": POSITIVE,
    "model.blocks": POSITIVE,
    "model.discriminator_width": POSITIVE,
}
VISION_LANGUAGE: Mapping[str, Rule] = {
    "decay": Choice(get_args(Decay)),
    "data.length": POSITIVE,
    "data.patches": POSITIVE,
    "pictures.min_pixels": POSITIVE,
    "pictures.max_pixels": POSITIVE,
    "model.dtype": Choice(DTYPES),
    **{
        name: TUMORCHAIN[name]
        for name in (
            *("micro_batch_size", "lr_multiplier", "trainable", "remat", "scan_unroll"),
            *("attention", "logits_chunks", "frozen_dtype"),
        )
    },
}
PATCH_STAGE: Mapping[str, Rule] = {
    "pretrain.patch_stage.crops_per_scan": POSITIVE,
    "pretrain.patch_stage.patches_per_batch": POSITIVE,
    "pretrain.patch_stage.learning_rate": RATE,
}
SCAN_STAGE: Mapping[str, Rule] = {
    "pretrain.scan_stage.scans": POSITIVE,
    "pretrain.scan_stage.learning_rate": RATE,
}


def check_settings(config: ConfigDict) -> None:
    """Refuse a value that a training cannot run with, of any task.

    Raises:
        InputError: a field is missing, or its value is out of range.
    """
    check_fields(config, COMMON)
    if "segmenter" in config:
        check_fields(config, SEGMENTER)
        _check_patch(config.segmenter)
        return
    if config.get("task") == "classification":
        check_fields(config, CLASSIFIER)
        return
    if config.get("task") == "translation":
        check_fields(config, TRANSLATION)
        if config.data.side % 4:
            _refuse("data.side", str(config.data.side), "a multiple of 4")
        return
    if config.get("task") == "vision_language":
        check_fields(config, VISION_LANGUAGE)
        _check_rows(config)
        return
    check_fields(config, TUMORCHAIN)
    _check_model(config.model)
    if config.pretrain.patch_stage.steps:
        check_fields(config, PATCH_STAGE)
    if config.pretrain.scan_stage.steps:
        check_fields(config, SCAN_STAGE)
    _check_chunks(config)


def _check_chunks(config: ConfigDict) -> None:
    if config.data.length % config.logits_chunks:
        expected = f"a divisor of config.data.length ({config.data.length})"
        _refuse("logits_chunks", str(config.logits_chunks), expected)


def _check_rows(config: ConfigDict) -> None:
    """Sizes of a vision-language row that divide each other, and parts that fit."""
    _check_chunks(config)
    model: QwenVLConfig = config.model
    if config.data.patches % MERGE**2:
        _refuse("data.patches", str(config.data.patches), f"a multiple of {MERGE**2}")
    if config.pictures.min_pixels > config.pictures.max_pixels:
        found, expected = str(config.pictures.min_pixels), "at most config.pictures.max_pixels"
        _refuse("pictures.min_pixels", found, expected)
    if model.tower.out_hidden_size != model.decoder.hidden_size:
        expected = f"{model.decoder.hidden_size}, as the decoder has"
        _refuse("model.tower.out_hidden_size", str(model.tower.out_hidden_size), expected)
    if model.decoder.mrope_section is None:
        _refuse("model.decoder.mrope_section", "none", "three numbers, half a head together")
    _check_heads(model.decoder)


def _check_model(model: TumorChainConfig) -> None:
    """Sizes that divide each other: voxels and patches, heads. Pooling: `TumorChainConfig`."""
    encoder, decoder = model.encoder, model.decoder
    image, grid = encoder.image, encoder.cells
    if min(grid) < 1 or any(size % count for size, count in zip(image, grid, strict=True)):
        _refuse("model.encoder.image", str(image), "a multiple of the patch size along each axis")
    _check_heads(decoder)
    for region in model.roi.regions:
        region_labels(region)


def _check_heads(decoder: Qwen2Config) -> None:
    heads, shared = decoder.num_attention_heads, decoder.num_key_value_heads
    if min(heads, shared) < 1 or heads % shared:
        expected = f"a divisor of the {heads} attention heads"
        _refuse("model.decoder.num_key_value_heads", str(shared), expected)


def _check_patch(segmenter: ConfigDict) -> None:
    """Voxels of a patch that the network's strides divide."""
    size, multiple = segmenter.patch_size, segmenter.network.multiple
    if any(voxels < 1 or voxels % stride for voxels, stride in zip(size, multiple, strict=True)):
        expected = f"multiples of {multiple}, the network's strides together"
        _refuse("segmenter.patch_size", str(size), expected)


def check_fields(config: ConfigDict, rules: Mapping[str, Rule]) -> None:
    """Hold the fields of a configuration against rules by dotted name.

    Raises:
        InputError: a field is missing, or its value is not allowed.
    """
    for name, rule in rules.items():
        value: Any = config
        for part in name.split("."):
            has = part in value if isinstance(value, ConfigDict) else hasattr(value, part)
            if not has:
                _refuse(name, "no such field", rule.expected)
            value = value[part] if isinstance(value, ConfigDict) else getattr(value, part)
        if not rule.accepts(value):
            _refuse(name, str(value), rule.expected)


def _refuse(name: str, found: str, expected: str) -> None:
    raise InputError("config", name, found, expected, "change it")
