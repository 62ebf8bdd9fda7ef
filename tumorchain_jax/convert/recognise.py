"""Format detection: the family of a folder of published weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp

from tumorchain_jax.convert import adapter
from tumorchain_jax.convert.adapter import Base
from tumorchain_jax.convert.gguf_file import unpack_gguf
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.families import (
    IMAGE_CLASSIFIERS,
    LANGUAGE_MODELS,
    VISION_ENCODERS,
    EncoderConfig,
    ImageClassifier,
    VisionEncoder,
    decoder_from_dict,
    decoder_to_dict,
    encoder_to_dict,
    image_to_dict,
    language_model,
    published_image_classifier,
    published_language_model,
)
from tumorchain_jax.models.image.beit.convert import is_usfm
from tumorchain_jax.models.language.qwen2.convert import TOWER_KEYS
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.qwen_vl import convert as qwen_vl
from tumorchain_jax.models.qwen_vl.tower import TowerConfig
from tumorchain_jax.models.tumorchain.projector import Projector, ProjectorConfig
from tumorchain_jax.models.vision.vit3d.convert import PROJECTOR_TABLE
from tumorchain_jax.models.weight_map import canonical
from tumorchain_jax.weights.matching import (
    Family,
    classifier_shapes,
    decoder_shapes,
    module_shapes,
    tower_shapes,
    under,
)
from tumorchain_jax.weights.pickles import pickles, unpickle
from tumorchain_jax.weights.tensor_files import Tensor, read_folder

Tensors = Mapping[str, Tensor]


@contextmanager
def open_tensors(folder: Path) -> Iterator[Tensors]:
    """Open the tensors of a folder of published weights: safetensors, or else pickles.

    Raises:
        InputError: it cannot be read.
    """
    if not folder.is_dir():
        raise InputError(folder, "input", "no such folder", "a folder of weights", "check the path")
    stem = adapter.STEM if (folder / adapter.CONFIG).is_file() else "model"
    found = [] if any(folder.glob(f"{stem}.safetensors*")) else pickles(folder)
    with TemporaryDirectory() as scratch:
        yield unpickle(found, Path(scratch)) if found else read_folder(folder, stem)


@contextmanager
def open_source(
    folder: Path, base: Path | None = None, drop_head: bool = False, tower: bool = False
) -> Iterator[tuple[Tensors, Family]]:
    """Open the tensors of a folder of published weights, and detect its family.

    Args:
        base: the model that an adapter is for: its own folder, or the imported one.
        drop_head: of an image classifier: leave its head out of our parameters.
        tower: of Qwen2.5-VL: have its vision tower among our parameters.

    Raises:
        InputError: it cannot be read, or is of no known family.
    """
    with open_tensors(folder) as tensors:
        adapted = read_base(base) if base else None
        yield tensors, detect_family(folder, tensors, adapted, drop_head, tower)


@contextmanager
def as_folder(source: Path) -> Iterator[Path]:
    """Open a folder of published weights as it is, or unpack a GGUF file for a while.

    Raises:
        InputError: it is a file that cannot be unpacked.
    """
    if not source.is_file():
        yield source
        return
    with TemporaryDirectory() as scratch:
        unpack_gguf(source, Path(scratch))
        yield Path(scratch)


def detect_family(
    folder: Path,
    tensors: Tensors,
    base: Base | None = None,
    drop_head: bool = False,
    tower: bool = False,
) -> Family:
    """Detect the family of a folder whose tensors are these.

    Args:
        base: what an adapter adapts.
        drop_head: of an image classifier: leave its head out of our parameters.
        tower: of Qwen2.5-VL: have its vision tower among our parameters.

    Raises:
        InputError: it is none that is known, or its configuration lacks a field; an option is for
            another kind.
    """
    path = folder / adapter.CONFIG
    if path.is_file():
        if base is None:
            hint = "name the model that it was made for, or that model's imported folder"
            raise InputError("command line", "--base", "none", "an adapter's base", hint)
        return adapter.read_adapter(path, read_json(path), base, tensors)
    path = folder / "config.json"
    fields = read_json(path) if path.is_file() else {}
    if tower and fields.get("model_type") != qwen_vl.MODEL_TYPE:
        raise InputError("command line", "--tower", "given", "a Qwen2.5-VL", "leave it out")
    if classifier := _image_classifier(path, fields, tensors):
        return _image_family(path, fields, tensors, *classifier, drop_head)
    if drop_head:
        raise InputError("command line", "--drop-head", "given", "an image classifier", "omit it")
    for name, encoder in VISION_ENCODERS.items():
        shapes = {canonical(encoder.RENAMES, key): tensors[key].shape for key in tensors}
        if encoder.SIGNATURE in shapes:
            return _vision_encoder(name, encoder, encoder.read_config(path, fields, shapes), shapes)
        if "projector.0.weight" in shapes and not fields:
            expected = "M3D's encoder too"
            hint = "put the encoder's file beside it, or it beside that"
            raise InputError(folder, "tensors", "a projector alone", expected, hint)
    if family := published_language_model(fields.get("model_type")):
        found = language_family(fields["model_type"], family.read_config(path, fields))
        return _with_tower(path, fields, found) if tower else found
    unknown = repr(fields["model_type"])[:80] if "model_type" in fields else "none"
    types = [kind for family in LANGUAGE_MODELS.values() for kind in family.MODEL_TYPES]
    encoders = " or ".join(VISION_ENCODERS)
    known = f"{', '.join(types)}, the encoder of {encoders}, or nnU-Net's plans.json"
    raise InputError(path, "model_type", unknown, known, "only these can be read")


def read_base(folder: Path) -> Base:
    """Read what an adapter adapts, from a model's own folder or an import of it.

    Raises:
        InputError: it is neither.
    """
    path = folder / "config.json"
    fields = read_json(path)
    if family := published_language_model(fields.get("model_type")):
        decoder = family.read_config(path, fields)
        # A folder of the decoder alone may keep the type of the whole.
        if fields["model_type"] != qwen_vl.MODEL_TYPE or "vision_config" not in fields:
            return Base(decoder)
        return Base(decoder, qwen_vl.read_config(path, fields, decoder.hidden_size))
    try:
        parts = fields["model"]
        tower = TowerConfig.from_dict(parts["tower"]) if "tower" in parts else None
        return Base(decoder_from_dict(parts["decoder"]), tower)
    except (KeyError, TypeError, ValueError) as error:
        found, expected = "no language model", "the folder of one, or what was imported from it"
        raise InputError(path, "model", found, expected, "use another --base") from error


def language_family(name: str, config: Qwen2Config) -> Family:
    """Family of a language model's folder, of any registered kind."""
    model, tied = language_model(config), config.tie_word_embeddings
    return Family(
        name,
        {"decoder": decoder_to_dict(config)},
        under("decoder", model.TABLE),
        {f"decoder/{path}": shape for path, shape in decoder_shapes(config).items()},
        model.RENAMES,
        # Some write the tied head all the same.
        (*model.IGNORE, *([r"lm_head\.weight"] if tied else [])),
        copies=((r"lm_head\.weight", "model.embed_tokens.weight"),) if tied else (),
    )


def _with_tower(path: Path, fields: Mapping[str, Any], decoder: Family) -> Family:
    """The family of a whole Qwen2.5-VL, from that of its decoder."""
    hidden_size = decoder.config["decoder"]["hidden_size"]
    config = qwen_vl.read_config(path, fields, hidden_size)
    shapes = tower_shapes(config)
    return replace(
        decoder,
        config=decoder.config | {"tower": asdict(config)},
        table=(*decoder.table, *under("tower", qwen_vl.TABLE)),
        shapes=decoder.shapes | {f"tower/{path}": shape for path, shape in shapes.items()},
        passthrough=tuple(each for each in decoder.passthrough if each != TOWER_KEYS),
    )


def _image_classifier(
    path: Path, fields: Mapping[str, Any], tensors: Tensors
) -> tuple[str, ImageClassifier] | None:
    """The family of a timm folder, or of USFM's bare pickle; None for anything else.

    Raises:
        InputError: it is timm's, and its architecture is not known.
    """
    if "architecture" not in fields:
        shapes = {key: tensor.shape for key, tensor in tensors.items()}
        return ("beit", IMAGE_CLASSIFIERS["beit"]) if not fields and is_usfm(shapes) else None
    found = published_image_classifier(fields["architecture"])
    if found is None:
        name = repr(fields["architecture"])[:80]
        known = ", ".join(family.ARCHITECTURES for family in IMAGE_CLASSIFIERS.values())
        raise InputError(path, "architecture", name, known, "only these can be read")
    return found


def _image_family(
    path: Path,
    fields: Mapping[str, Any],
    tensors: Tensors,
    name: str,
    family: ImageClassifier,
    drop_head: bool,
) -> Family:
    renames = family.renames(tensors)
    shapes = {canonical(renames, key): tensor.shape for key, tensor in tensors.items()}
    config = family.read_config(path, fields, shapes)
    carried = family.CARRIED
    if drop_head:
        config, carried = replace(config, classes=0), (*carried, family.HEAD)
    return Family(
        name,
        {"classifier": image_to_dict(config)},
        under("classifier", family.TABLE),
        {f"classifier/{each}": shape for each, shape in classifier_shapes(config).items()},
        renames,
        carried,
        hint="complete the folder; another number of classes needs --drop-head",
    )


def _vision_encoder(
    name: str, family: VisionEncoder, config: EncoderConfig, named: Mapping[str, tuple[int, ...]]
) -> Family:
    volume = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
    inner = module_shapes(family.build(config), volume)
    shapes = {f"encoder/{path}": shape for path, shape in inner.items()}
    table, values = under("encoder", family.TABLE), {"encoder": encoder_to_dict(config)}
    if len(weight := named.get("projector.0.weight", ())) == 2:
        features, inputs = weight
        projector = Projector(ProjectorConfig("gelu"), features)
        cells = jax.ShapeDtypeStruct((1, 1, inputs), jnp.float32)
        shapes |= {f"projector/{path}": s for path, s in module_shapes(projector, cells).items()}
        table = (*table, *under("projector", PROJECTOR_TABLE))
        values["projector"] = asdict(projector.config)
    return Family(name, values, table, shapes, family.RENAMES, family.CARRIED, family.IGNORE)
