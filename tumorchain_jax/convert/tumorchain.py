"""Conversion of a whole TumorChain to what plain PyTorch loads, and back.

    config.json                     as in our checkpoint: model, preprocessing, history
    language_model/                 a Hugging Face folder
    adapter/                        a PEFT folder, if the model has LoRA
    encoder.safetensors             its published names: of M3D-CLIP, of Merlin
    projector.safetensors           M3D's names: `projector.0`, `projector.2`
    organ_classifier.safetensors    `fc`
    crop_embedding.safetensors      `region`, `place`, if the model reads crops
    evaluation.json, ...            as in our checkpoint: see `weights/measured.py`

Ours has all of it in one file, see `checkpoint_parts.py`.
"""

import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

from tumorchain_jax.convert import adapter
from tumorchain_jax.convert.checkpoint_parts import (
    FLOAT32,
    File,
    Part,
    check_tensors,
    compare_files,
    files_of,
    layer_of,
    write_files,
)
from tumorchain_jax.convert.format import Facts, Format, Options
from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.families import language_model, vision_encoder
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.models.vision.vit3d.convert import PROJECTOR_TABLE
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Table
from tumorchain_jax.weights.measured import copy_measured
from tumorchain_jax.weights.tensor_files import Tensor, TensorWriter, read_file

OURS = "model.safetensors"
LANGUAGE_MODEL = "language_model"
ADAPTER = "adapter"
TOKENIZER = "tokenizer.json"
CLASSIFIER_TABLE: Table = (
    (r"fc/kernel", r"fc.weight", TRANSPOSE),
    (r"fc/bias", r"fc.bias", KEEP),
)
CROPS_TABLE: Table = (
    (r"region", r"region", KEEP),
    (r"place/kernel", r"place.weight", TRANSPOSE),
)


def _all_parts(config: TumorChainConfig) -> tuple[Part, ...]:
    encoder, decoder = vision_encoder(config.encoder), language_model(config.decoder)
    adapters = f"{ADAPTER}/{adapter.STEM}.safetensors"
    return (
        Part(f"{LANGUAGE_MODEL}/model.safetensors", "decoder/", decoder.TABLE),
        Part(adapters, "decoder/", decoder.LORA_TABLE, adapters=True),
        Part("encoder.safetensors", "encoder/", encoder.TABLE),
        Part("projector.safetensors", "projector/", PROJECTOR_TABLE),
        Part("organ_classifier.safetensors", "organ_classifier/", CLASSIFIER_TABLE),
        Part("crop_embedding.safetensors", "crop_embedding/", CROPS_TABLE),
    )


def is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint that training exported."""
    config = _read_config(folder)
    # A repository for the hub has both as well, and a `model_type`.
    return (folder / OURS).is_file() and "preprocess" in config and "model_type" not in config


def _is_theirs(folder: Path) -> bool:
    """Whether a folder is a TumorChain for PyTorch."""
    return (folder / LANGUAGE_MODEL).is_dir() and "preprocess" in _read_config(folder)


def _read_config(folder: Path) -> dict:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def export_tumorchain(source: Path, output: Path, options: Options) -> int:
    """Convert our checkpoint folder to the folder for PyTorch.

    Returns:
        how many tensors were written.

    Raises:
        InputError: the checkpoint is damaged, or has adapters outside of its decoder.
    """
    with atomic_directory(output) as staging:
        return _write_theirs(source, staging)


def _write_theirs(source: Path, output: Path) -> int:
    config, found = open_ours(source)
    count = write_files(output, parts(source, config), found)
    _write_companions(source, output, config)
    return count


def import_tumorchain(source: Path, output: Path, options: Options) -> int:
    """Convert the folder for PyTorch back to our checkpoint folder.

    Returns:
        how many tensors were read.

    Raises:
        InputError: a file is missing or damaged, or has other tensors than the configuration says.
    """
    with atomic_directory(output) as staging:
        return _write_ours(source, staging)


def _write_ours(source: Path, output: Path) -> int:
    config = _model(source)
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    specs = {path: (FLOAT32, shapes[path]) for path in sorted(shapes)}
    count = 0
    with (output / OURS).open("w+b") as stream:
        writer = TensorWriter(stream, specs, made_by="np")
        for part in parts(source, config):
            found = read_file(source / part.file)
            check_tensors(source / part.file, found, part.specs)
            for path, source_of in part.sources.items():
                for layer, key in enumerate(source_of.keys):
                    values = source_of.transform.to_ours(layer_of(found[key], 0, False))
                    writer.write(path, layer * values.nbytes, values)
            count += len(found)
    shutil.copyfile(source / "config.json", output / "config.json")
    shutil.copyfile(source / LANGUAGE_MODEL / TOKENIZER, output / TOKENIZER)
    copy_measured(source, output)
    return count


def inspect_tumorchain(source: Path, options: Options) -> Facts:
    """Describe a checkpoint or its export for PyTorch, as plain values.

    Raises:
        InputError: a file is missing or damaged, or has other tensors than the configuration says.
    """
    ours = is_ours(source)
    config = open_ours(source)[0] if ours else _model(source)
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    parameters: dict[str, Any] = {}
    for part in parts(source, config):
        if not ours:
            check_tensors(source / part.file, read_file(source / part.file), part.specs)
        for path, source_of in part.sources.items():
            shape = list(shapes[path])
            parameters[path] = {"shape": shape, "from": f"{part.file}: {source_of.keys[0]}"}
    count = len(shapes) if ours else sum(len(p.specs) for p in parts(source, config))
    return {
        "family": f"tumorchain ({'a checkpoint' if ours else 'for PyTorch'})",
        "config": config.to_dict(),
        "tensors": count,
        "bytes": sum(prod(shape) for shape in shapes.values()) * FLOAT32.itemsize,
        "dtypes": [FLOAT32.name],
        "parameters": parameters,
        "passthrough": [],
        "ignored": [],
    }


def verify_tumorchain(source: Path, converted: Path) -> Verdict:
    """Compare a checkpoint with what was exported from it, tensor by tensor, by hash.

    Args:
        source, converted: the two, in either order.

    Raises:
        InputError: a folder is damaged, or of another model than its configuration says.
    """
    ours, theirs = (source, converted) if is_ours(source) else (converted, source)
    config, found = open_ours(ours)
    verdict = compare_files(theirs, parts(ours, config), found)
    pairs = {"config.json": "config.json", TOKENIZER: f"{LANGUAGE_MODEL}/{TOKENIZER}"}
    for name, other in pairs.items():
        same = (theirs / other).is_file() and _bytes(ours / name) == _bytes(theirs / other)
        (verdict.equal if same else verdict.different).append(name)
    settings = {
        f"{LANGUAGE_MODEL}/config.json": language_model(config.decoder).transformers_config(
            config.decoder
        )
    }
    if config.lora:
        settings[f"{ADAPTER}/{adapter.CONFIG}"] = _adapter_config(config.lora, config)
    for name, expected in settings.items():
        same = (theirs / name).is_file() and read_json(theirs / name) == expected
        (verdict.equal if same else verdict.different).append(name)
    return verdict


def _bytes(path: Path) -> bytes:
    return path.read_bytes()


def _model(folder: Path) -> TumorChainConfig:
    path = folder / "config.json"
    try:
        return TumorChainConfig.from_dict(_read_config(folder)["model"])
    except (KeyError, ValueError) as error:
        found, hint = repr(str(error)[:200]), "export it again"
        raise InputError(path, "model", found, "a TumorChain", hint) from error


def open_ours(folder: Path) -> tuple[TumorChainConfig, dict[str, Tensor]]:
    """Open the weights of a checkpoint, which must be those of its configuration."""
    config = _model(folder)
    found = read_file(folder / OURS)
    shapes = {path: (FLOAT32, leaf.shape) for path, leaf in abstract_params(config).items()}
    check_tensors(folder / OURS, found, shapes)
    return config, found


def parts(folder: Path, config: TumorChainConfig) -> list[File]:
    """List the files that a model has."""
    return files_of(folder, _all_parts(config), abstract_params(config))


def _write_companions(source: Path, output: Path, config: TumorChainConfig) -> None:
    shutil.copyfile(source / "config.json", output / "config.json")
    copy_measured(source, output)
    folder = output / LANGUAGE_MODEL
    tokenizer = Tokenizer.load(source, config.template.special_tokens)
    tokenizer.backend.save_pretrained(folder)
    # As it is in the checkpoint, to the byte.
    shutil.copyfile(source / TOKENIZER, folder / TOKENIZER)
    fields = language_model(config.decoder).transformers_config(config.decoder)
    write_json(folder / "config.json", fields)
    ends = {"eos_token_id": tokenizer.im_end, "pad_token_id": tokenizer.pad, "do_sample": False}
    write_json(folder / "generation_config.json", ends)
    if config.lora:
        write_json(output / ADAPTER / adapter.CONFIG, _adapter_config(config.lora, config))


def _adapter_config(lora: LoRA, config: TumorChainConfig) -> dict:
    """Build PEFT's configuration of our adapters: one rank and one alpha for each projection."""
    modules = {
        path.split("/")[-2]: path.rpartition("/")[0]
        for path in abstract_params(config)
        if path.startswith("decoder/") and path.endswith("/lora_a")
    }
    ranks = {name: lora.rank_of(path) for name, path in modules.items()}
    alphas = {name: lora.alpha_of(path) for name, path in modules.items()}
    return adapter.adapter_config(lora, ranks, alphas)


def write_json(path: Path, values: dict) -> None:
    """Write values as indented JSON."""
    path.write_text(json.dumps(values, indent=2) + "\n")


TUMORCHAIN = Format(
    name="a TumorChain",
    detect=lambda folder: is_ours(folder) or _is_theirs(folder),
    inspect=inspect_tumorchain,
    to_ours=import_tumorchain,
    to_theirs=export_tumorchain,
    verify=verify_tumorchain,
)
