"""The registry of model families: what a family provides, and one line for each.

A family is the module `convert.py` of its folder; a protocol below says what has to be in it. How
to add one: README.md, here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, get_args, get_type_hints, runtime_checkable

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.models.image.beit import convert as beit
from tumorchain_jax.models.image.pyramid import convert as pyramid
from tumorchain_jax.models.image.resnet import convert as resnet
from tumorchain_jax.models.image.swin import convert as swin
from tumorchain_jax.models.image.vit import convert as vit
from tumorchain_jax.models.language.chat_template import ChatTemplate
from tumorchain_jax.models.language.qwen2 import convert as qwen2
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.language.qwen3 import convert as qwen3
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.vision.resnet3d import convert as resnet3d
from tumorchain_jax.models.vision.vit3d import convert as vit3d
from tumorchain_jax.models.weight_map import Renames, Table


@runtime_checkable
class EncoderConfig(Protocol):
    """What any vision encoder's configuration tells."""

    @property
    def image(self) -> tuple[int, int, int]:
        """Voxels (D, H, W) of its input."""

    @property
    def cells(self) -> tuple[int, int, int]:
        """The grid of its features; each number divides that of the image."""

    @property
    def features(self) -> int:
        """Size of a cell's feature vector."""


@runtime_checkable
class VisionEncoder(Protocol):
    """A family of 3D encoders: a volume `[B, D, H, W]` in, features `[B, N, C]` of its cells out.

    D runs to superior, H to posterior, W to the left; cells are in raster order. The logical axes
    are those that the module's parameters carry.

    Attributes:
        CONFIG: the class of its configurations, an `EncoderConfig`.
        SIGNATURE: a key that only its published weights have.
        TABLE, RENAMES: of its weights, see `weight_map.py`.
        IGNORE: regexes over keys of published weights that nothing here uses.
        CARRIED: regexes over keys that are stored unchanged, for export.
    """

    CONFIG: type[Any]
    SIGNATURE: str
    TABLE: Table
    RENAMES: Renames
    IGNORE: tuple[str, ...]
    CARRIED: tuple[str, ...]

    def build(
        self,
        config: Any,
        lora: LoRA | None = None,
        dtype: DTypeLike = "float32",
        remat: Remat = "none",
        scan_unroll: int = 1,
    ) -> nn.Module:
        """The module; see `models/layers/remat.py` for `remat`."""

    def read_config(
        self, path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> Any:
        """Our configuration from a published `config.json` (at `path`; it may be missing, and
        `fields` empty) and the shapes of its tensors, or an InputError.
        """

    def check(self, config: Any) -> None:
        """Raise ValueError if positive sizes make no encoder; see `config_check.require`."""

    def num_heads(self, config: Any) -> int | None:
        """Heads of its attention, which a mesh may cut; None if it has none."""

    def attention_flops(self, config: Any) -> int:
        """Floating-point operations without a kernel, forward, for one volume."""

    def kernel_flops(self, config: Any, path: str, shape: tuple[int, ...]) -> int:
        """Those of the kernel at `path`, forward, for one volume."""


@runtime_checkable
class LanguageModel(Protocol):
    """A family of decoders: each is a configuration of `qwen2.model.Decoder`.

    Attributes:
        CONFIG: the class of its configurations.
        MODEL_TYPES: the `model_type` of its published `config.json`.
        TABLE, RENAMES: of its weights, see `weight_map.py`.
        IGNORE: regexes over keys of published weights that nothing here uses.
        LORA_TABLE, LORA_RENAMES: of an adapter: which layers can have one, and PEFT's keys.
        CHAT: its chat template and special tokens.
    """

    CONFIG: type[Any]
    MODEL_TYPES: tuple[str, ...]
    TABLE: Table
    RENAMES: Renames
    IGNORE: tuple[str, ...]
    LORA_TABLE: Table
    LORA_RENAMES: Renames
    CHAT: ChatTemplate

    def read_config(self, path: Path, fields: Mapping[str, Any]) -> Any:
        """Our configuration from a published `config.json`, or an InputError."""

    def transformers_config(self, config: Any) -> dict[str, Any]:
        """A `config.json` that transformers opens."""


@runtime_checkable
class ImageConfig(Protocol):
    """What any image classifier's configuration tells."""

    def __hash__(self) -> int:
        """Configurations are frozen: programs are kept by them."""

    @property
    def channels(self) -> int:
        """Of the images."""

    @property
    def classes(self) -> int:
        """Of the head; 0 for none."""

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""


@runtime_checkable
class ImageClassifier(Protocol):
    """A family of 2D classifiers: images `[B, H, W, C]` in, (logits, pooled features) out.

    Attributes:
        CONFIG: the class of its configurations, an `ImageConfig`.
        ARCHITECTURES: regex over the `architecture` of its published `config.json`.
        TABLE: of its weights and running statistics, see `weight_map.py`.
        HEAD: regex over the keys of the head, in the table's spelling.
        CARRIED: regexes over keys that are stored unchanged, for export.
    """

    CONFIG: type[Any]
    ARCHITECTURES: str
    TABLE: Table
    HEAD: str
    CARRIED: tuple[str, ...]

    def renames(self, keys: Iterable[str]) -> Renames:
        """Other spellings in a folder of these keys, see `weight_map.py`."""

    def read_config(
        self, path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> Any:
        """Our configuration from a published `config.json` (at `path`) and the shapes of its
        tensors in the table's spelling, or an InputError.
        """

    def build(
        self,
        config: Any,
        lora: LoRA | None = None,
        dtype: DTypeLike = "float32",
        remat: Remat = "none",
        drop_path: float = 0.0,
    ) -> nn.Module:
        """The module."""


# The first of each is the family of a configuration that does not name one.
VISION_ENCODERS: Mapping[str, VisionEncoder] = {
    "m3d": vit3d,
    "merlin": resnet3d,
}
LANGUAGE_MODELS: Mapping[str, LanguageModel] = {
    "qwen2": qwen2,
    "qwen3": qwen3,
}
IMAGE_CLASSIFIERS: Mapping[str, ImageClassifier] = {
    "resnet": resnet,
    "vit": vit,
    "beit": beit,
    "swin": swin,
    "pyramid": pyramid,
}


def image_classifier(config: ImageConfig) -> ImageClassifier:
    """The family of an image classifier's configuration."""
    return _family(IMAGE_CLASSIFIERS, config)[1]


def published_image_classifier(architecture: object) -> tuple[str, ImageClassifier] | None:
    """The name and the family of a published `architecture`, if it is known."""
    for name, family in IMAGE_CLASSIFIERS.items():
        if re.fullmatch(family.ARCHITECTURES, str(architecture)):
            return name, family
    return None


def image_to_dict(config: ImageConfig) -> dict[str, Any]:
    """Plain values of an image classifier's configuration, for JSON."""
    return _to_dict(IMAGE_CLASSIFIERS, config)


def image_from_dict(values: Mapping[str, Any]) -> ImageConfig:
    """The inverse of `image_to_dict`; lists from JSON become tuples.

    Raises:
        ValueError: it is no object, or the family is unknown.
        TypeError: a field is unknown or missing.
    """
    return _from_dict(IMAGE_CLASSIFIERS, values)


def vision_encoder(config: EncoderConfig) -> VisionEncoder:
    """The family of an encoder's configuration."""
    return _family(VISION_ENCODERS, config)[1]


def language_model(config: Qwen2Config) -> LanguageModel:
    """The family of a decoder's configuration."""
    return _family(LANGUAGE_MODELS, config)[1]


def published_language_model(model_type: object) -> LanguageModel | None:
    """The family whose published `config.json` has this `model_type`, if it is known."""
    families = LANGUAGE_MODELS.values()
    return next((family for family in families if model_type in family.MODEL_TYPES), None)


def encoder_to_dict(config: EncoderConfig) -> dict[str, Any]:
    """Plain values of an encoder's configuration, for JSON."""
    return _to_dict(VISION_ENCODERS, config)


def encoder_from_dict(values: Mapping[str, Any]) -> EncoderConfig:
    """The inverse of `encoder_to_dict`; lists from JSON become tuples.

    Raises:
        ValueError: it is no object, or the family is unknown.
        TypeError: a field is unknown or missing.
    """
    return _from_dict(VISION_ENCODERS, values)


def decoder_to_dict(config: Qwen2Config) -> dict[str, Any]:
    """Plain values of a decoder's configuration, for JSON."""
    return _to_dict(LANGUAGE_MODELS, config)


def decoder_from_dict(values: Mapping[str, Any]) -> Qwen2Config:
    """The inverse of `decoder_to_dict`; lists from JSON become tuples.

    Raises:
        ValueError: it is no object, or the family is unknown.
        TypeError: a field is unknown or missing.
    """
    return _from_dict(LANGUAGE_MODELS, values)


def _family(families: Mapping[str, Any], config: Any) -> tuple[str, Any]:
    for name, family in families.items():
        if type(config) is family.CONFIG:
            return name, family
    raise TypeError(f"{type(config).__name__} is of no family among {', '.join(families)}")


def _to_dict(families: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Fields that are None are left out, as is the name of the first family."""
    name, _ = _family(families, config)
    named = {} if name == next(iter(families)) else {"family": name}
    return named | {field: value for field, value in asdict(config).items() if value is not None}


def family_fields(families: Mapping[str, Any], values: Any) -> tuple[type[Any], dict[str, Any]]:
    """Split the JSON values of a configuration into its family's class and its fields.

    Raises:
        ValueError: it is no object, or the family is unknown.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"found {str(values)[:80]!r}, expected the fields of a configuration")
    fields: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value for field, value in values.items()
    }
    name = fields.pop("family", next(iter(families)))
    if name not in families:
        raise ValueError(f"family: found {str(name)[:80]!r}, expected one of {', '.join(families)}")
    kind = families[name].CONFIG
    for field, hint in get_type_hints(kind).items():
        named = [each for each in get_args(hint) if hasattr(each, "_fields")]
        if named and len(fields.get(field) or ()) == len(named[0]._fields):
            fields[field] = named[0](*fields[field])
    return kind, fields


def _from_dict(families: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    kind, fields = family_fields(families, values)
    return kind(**fields)
