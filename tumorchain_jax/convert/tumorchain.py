"""Conversion of a whole TumorChain to what plain PyTorch loads, and back.

    config.json                     as in our checkpoint: model, preprocessing, history
    language_model/                 a Hugging Face folder
    adapter/                        a PEFT folder, if the model has LoRA
    encoder.safetensors             its published names: of M3D-CLIP, of Merlin
    projector.safetensors           M3D's names: `projector.0`, `projector.2`
    organ_classifier.safetensors    `fc`
    crop_embedding.safetensors      `region`, `place`, if the model reads crops
    evaluation.json, ...            as in our checkpoint: see `weights/measured.py`

Ours has all of it in one file, layers stacked. Both ways go tensor by tensor.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tumorchain_jax.convert import adapter
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
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Source, Table, sources
from tumorchain_jax.weights.array_check import check_shapes
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
FLOAT32 = np.dtype(np.float32)


class Part(NamedTuple):
    """Rule for one file of the PyTorch folder.

    Attributes:
        prefix: of our paths that are in it.
        adapters: it holds the adapters of that part, and nothing else; else all but these.
    """

    file: str
    prefix: str
    table: Table
    adapters: bool = False


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
    (output / LANGUAGE_MODEL).mkdir(parents=True)
    count = 0
    for part in parts(source, config):
        (output / part.file).parent.mkdir(exist_ok=True)
        with (output / part.file).open("w+b") as stream:
            writer = TensorWriter(stream, part.specs)
            for path, source_of in part.sources.items():
                for layer, key in enumerate(source_of.keys):
                    values = read_layer(found[path], layer, source_of.stacked)
                    writer.write(key, 0, source_of.transform.from_ours(values))
        count += len(part.specs)
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
            _check(source / part.file, found, part.specs)
            for path, source_of in part.sources.items():
                for layer, key in enumerate(source_of.keys):
                    values = source_of.transform.to_ours(read_layer(found[key], 0, False))
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
            _check(source / part.file, read_file(source / part.file), part.specs)
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
    verdict = Verdict([], [], [], [], [])
    for part in parts(ours, config):
        exported = read_file(theirs / part.file)
        verdict.added.extend(key for key in exported if key not in part.specs)
        verdict.missing.extend(key for key in part.specs if key not in exported)
        for path, source_of in part.sources.items():
            for layer, key in enumerate(source_of.keys):
                if key in exported:
                    values = read_layer(found[path], layer, source_of.stacked)
                    same = _hash(source_of.transform.from_ours(values)) == _hash(
                        read_layer(exported[key], 0, False)
                    )
                    (verdict.equal if same else verdict.different).append(key)
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


def _hash(values: np.ndarray) -> str:
    header = f"{values.dtype}{values.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(values).tobytes()).hexdigest()


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
    _check(folder / OURS, found, shapes)
    return config, found


class File(NamedTuple):
    """A file of the PyTorch folder of one model.

    Attributes:
        sources: what our parameters in it are made of, by path.
        specs: dtype and shape of its tensors, by key.
    """

    file: str
    sources: dict[str, Source]
    specs: dict[str, tuple[np.dtype, tuple[int, ...]]]


def parts(folder: Path, config: TumorChainConfig) -> list[File]:
    """List the files that a model has."""
    files = []
    params = abstract_params(config)
    for part in _all_parts(config):
        like = {
            path.removeprefix(part.prefix): leaf
            for path, leaf in params.items()
            if path.startswith(part.prefix)
            and (path.endswith(("/lora_a", "/lora_b")) and part.prefix == "decoder/")
            is part.adapters
        }
        if strange := [path for path in like if "/lora_" in path and not part.adapters]:
            expected, hint = "adapters in the decoder alone", "merge them first"
            raise InputError(folder, part.prefix + strange[0], "an adapter", expected, hint)
        if like:
            made_of = sources(part.table, like)
            specs = {
                key: (FLOAT32, made_of[path].their_shape(leaf.shape))
                for path, leaf in like.items()
                for key in made_of[path].keys
            }
            named = {part.prefix + path: made_of[path] for path in like}
            files.append(File(part.file, named, specs))
    return files


def read_layer(tensor: Tensor, layer: int, stacked: bool) -> np.ndarray:
    """Read one layer of a tensor, or all of it."""
    shape = tensor.shape[1:] if stacked else tensor.shape
    start = tensor.start + layer * prod(shape) * tensor.dtype.itemsize
    return np.fromfile(tensor.file, tensor.dtype, prod(shape), offset=start).reshape(shape)


def _check(
    path: Path,
    found: Mapping[str, Tensor],
    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
) -> None:
    check_shapes(
        path,
        {key: f"{tensor.shape} {tensor.dtype}" for key, tensor in found.items()},
        {key: f"{shape} {dtype}" for key, (dtype, shape) in specs.items()},
        "put the weights and the config.json of one model together",
    )


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
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.rslora,
        "rank_pattern": {name: rank for name, rank in ranks.items() if rank != lora.rank},
        "alpha_pattern": {name: alpha for name, alpha in alphas.items() if alpha != lora.alpha},
        "target_modules": sorted(modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }


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
