"""What a folder of weights is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp

from tumorchain_jax.convert import adapter
from tumorchain_jax.convert.gguf_file import unpack_gguf
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.language.qwen2 import convert as qwen2
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.projector import Projector, ProjectorConfig
from tumorchain_jax.models.vision.vit3d import convert as vit3d
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig
from tumorchain_jax.models.weight_map import canonical
from tumorchain_jax.weights.matching import Family, decoder_shapes, module_shapes, under
from tumorchain_jax.weights.pickles import pickles, unpickle
from tumorchain_jax.weights.tensor_files import Tensor, read_folder

Tensors = Mapping[str, Tensor]


@contextmanager
def open_tensors(folder: Path) -> Iterator[Tensors]:
    """The tensors of a folder of published weights, from safetensors or else from pickles.

    Raises:
        InputError: it cannot be read.
    """
    if not folder.is_dir():
        raise InputError(folder, "input", "no such folder", "a folder of weights", "name one")
    stem = adapter.STEM if (folder / adapter.CONFIG).is_file() else "model"
    found = [] if any(folder.glob(f"{stem}.safetensors*")) else pickles(folder)
    with TemporaryDirectory() as scratch:
        yield unpickle(found, Path(scratch)) if found else read_folder(folder, stem)


@contextmanager
def open_source(folder: Path, base: Path | None = None) -> Iterator[tuple[Tensors, Family]]:
    """The tensors of a folder of published weights, and its family.

    Args:
        base: the model that an adapter is for: its own folder, or the imported one.

    Raises:
        InputError: it cannot be read, or is of no known family.
    """
    with open_tensors(folder) as tensors:
        yield tensors, recognise(folder, tensors, read_base(base) if base else None)


@contextmanager
def as_folder(source: Path) -> Iterator[Path]:
    """A folder of published weights: itself, or what a GGUF file holds, unpacked for a while.

    Raises:
        InputError: it is a file that cannot be unpacked.
    """
    if not source.is_file():
        yield source
        return
    with TemporaryDirectory() as scratch:
        unpack_gguf(source, Path(scratch))
        yield Path(scratch)


def recognise(folder: Path, tensors: Tensors, base: Qwen2Config | None = None) -> Family:
    """The family of a folder whose tensors are these.

    Args:
        base: what an adapter adapts.

    Raises:
        InputError: it is none that is known, or its configuration lacks a field.
    """
    path = folder / adapter.CONFIG
    if path.is_file():
        if base is None:
            hint = "name the model that it was made for, or that model's imported folder"
            raise InputError("command line", "--base", "none", "an adapter's base", hint)
        return adapter.read_adapter(path, read_json(path), base, tensors)
    path = folder / "config.json"
    fields = read_json(path) if path.is_file() else {}
    keys = {canonical(vit3d.RENAMES, key) for key in tensors}
    if "patch_embedding.position_embeddings" in keys:
        return _m3d(path, fields, tensors)
    if str(fields.get("model_type")) in qwen2.BIASED:
        return language_model(fields["model_type"], qwen2.read_config(path, fields))
    found = repr(fields["model_type"]) if "model_type" in fields else "none"
    known = f"{', '.join(qwen2.BIASED)}, the tensors of M3D-CLIP's encoder, or nnU-Net's plans.json"
    raise InputError(path, "model_type", found, known, "only these can be read")


def read_base(folder: Path) -> Qwen2Config:
    """The decoder's configuration of a model's own folder, or of what was imported from it.

    Raises:
        InputError: it is neither.
    """
    path = folder / "config.json"
    fields = read_json(path)
    if str(fields.get("model_type")) in qwen2.BIASED:
        return qwen2.read_config(path, fields)
    try:
        return Qwen2Config(**fields["model"]["decoder"])
    except (KeyError, TypeError) as error:
        found, expected = "no language model", "the folder of one, or what was imported from it"
        raise InputError(path, "model", found, expected, "name another --base") from error


def language_model(name: str, config: Qwen2Config) -> Family:
    """Qwen2.5, the language model of Qwen2.5-VL, or Llama."""
    tied = config.tie_word_embeddings
    return Family(
        name,
        {"decoder": asdict(config)},
        under("decoder", qwen2.TABLE),
        {f"decoder/{path}": shape for path, shape in decoder_shapes(config).items()},
        qwen2.RENAMES,
        # Some write the tied head all the same.
        (*qwen2.IGNORE, *([r"lm_head\.weight"] if tied else [])),
        copies=(("lm_head.weight", "model.embed_tokens.weight"),) if tied else (),
    )


def _m3d(path: Path, fields: Mapping[str, Any], tensors: Tensors) -> Family:
    config = ViT3DConfig()  # the bare encoder and M3D-LaMed do not say: there is one size of it
    if set(vit3d.CLIP_FIELDS) & set(fields) - {"hidden_size"}:
        config = vit3d.read_config(path, fields)
    volume = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
    shapes = {f"encoder/{path}": s for path, s in module_shapes(ViT3D(config), volume).items()}
    table, values = under("encoder", vit3d.TABLE), {"encoder": asdict(config)}
    named = {canonical(vit3d.RENAMES, key): tensor for key, tensor in tensors.items()}
    if (weight := named.get("projector.0.weight")) and len(weight.shape) == 2:
        features, inputs = weight.shape
        projector = Projector(ProjectorConfig("gelu"), features)
        cells = jax.ShapeDtypeStruct((1, 1, inputs), jnp.float32)
        shapes |= {f"projector/{path}": s for path, s in module_shapes(projector, cells).items()}
        table = (*table, *under("projector", vit3d.PROJECTOR_TABLE))
        values["projector"] = asdict(projector.config)
    # What else the whole CLIP and M3D-LaMed hold: text encoder, language model, segmentation.
    rest = r"(?!blocks\.|norm\.|patch_embedding\.|cls_token|projector\.).*"
    return Family("m3d", values, table, shapes, vit3d.RENAMES, (rest,), vit3d.IGNORE)
