"""A whole TumorChain as plain PyTorch loads it, and back.

    config.json                     as in our checkpoint: model, preprocessing, history
    language_model/                 a Hugging Face folder
    adapter/                        a PEFT folder, if the model has LoRA
    encoder.safetensors             its published names: of M3D-CLIP, of Merlin
    projector.safetensors           M3D's names: `projector.0`, `projector.2`
    organ_classifier.safetensors    `fc`

Ours has all of it in one file, layers stacked. Both ways go tensor by tensor.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.convert import adapter
from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.families import language_model, vision_encoder
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.models.vision.vit3d.convert import PROJECTOR_TABLE
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Source, Table, sources
from tumorchain_jax.weights.tensor_files import Tensor, TensorWriter, read_file

OURS = "model.safetensors"
LANGUAGE_MODEL = "language_model"
ADAPTER = "adapter"
CLASSIFIER_TABLE: Table = (
    (r"fc/kernel", r"fc.weight", TRANSPOSE),
    (r"fc/bias", r"fc.bias", KEEP),
)
FLOAT32 = np.dtype(np.float32)


class Part(NamedTuple):
    """A file of the PyTorch folder.

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
    )


def is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint that training exported."""
    return (folder / OURS).is_file() and "preprocess" in _read_config(folder)


def is_theirs(folder: Path) -> bool:
    """Whether a folder is a TumorChain for PyTorch."""
    return (folder / LANGUAGE_MODEL).is_dir() and "preprocess" in _read_config(folder)


def _read_config(folder: Path) -> dict:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def export_tumorchain(source: Path, output: Path) -> int:
    """Our checkpoint folder -> the folder for PyTorch.

    Returns:
        how many tensors were written.

    Raises:
        InputError: the checkpoint is damaged, or has adapters outside of its decoder.
    """
    config = _model(source)
    found = read_file(source / OURS)
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    _check(source / OURS, found, shapes)
    (output / LANGUAGE_MODEL).mkdir(parents=True)
    count = 0
    for part, made_of in _parts(source, config, shapes):
        (output / part.file).parent.mkdir(exist_ok=True)
        keys = {
            key: (FLOAT32, _their_shape(made_of[path], shapes[path]))
            for path in made_of
            for key in made_of[path].keys
        }
        with (output / part.file).open("w+b") as stream:
            writer = TensorWriter(stream, keys)
            for path, source_of in made_of.items():
                for layer, key in enumerate(source_of.keys):
                    values = _layer(found[path], layer, source_of.stacked)
                    writer.write(key, 0, source_of.transform.from_ours(values))
        count += len(keys)
    _write_companions(source, output, config)
    return count


def import_tumorchain(source: Path, output: Path) -> int:
    """The inverse of `export_tumorchain`.

    Returns:
        how many tensors were read.

    Raises:
        InputError: a file is missing or damaged, or has other tensors than the configuration says.
    """
    config = _model(source)
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    specs = {path: (FLOAT32, shapes[path]) for path in sorted(shapes)}
    count = 0
    with (output / OURS).open("w+b") as stream:
        writer = TensorWriter(stream, specs, made_by="np")
        for part, made_of in _parts(source, config, shapes):
            found = read_file(source / part.file)
            expected = {
                key: _their_shape(made_of[path], shapes[path])
                for path in made_of
                for key in made_of[path].keys
            }
            _check(source / part.file, found, expected)
            for path, source_of in made_of.items():
                for layer, key in enumerate(source_of.keys):
                    values = source_of.transform.to_ours(_layer(found[key], 0, False))
                    writer.write(path, layer * values.nbytes, values)
            count += len(found)
    shutil.copyfile(source / "config.json", output / "config.json")
    shutil.copyfile(source / LANGUAGE_MODEL / "tokenizer.json", output / "tokenizer.json")
    return count


def verify_tumorchain(ours: Path, theirs: Path) -> Verdict:
    """Compare a checkpoint with what was exported from it, tensor by tensor, by hash.

    Raises:
        InputError: a folder is damaged, or of another model than its configuration says.
    """
    config = _model(ours)
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    found = read_file(ours / OURS)
    _check(ours / OURS, found, shapes)
    verdict = Verdict([], [], [], [], [])
    for part, made_of in _parts(ours, config, shapes):
        exported = read_file(theirs / part.file)
        keys = {key for source in made_of.values() for key in source.keys}
        verdict.added.extend(key for key in exported if key not in keys)
        verdict.missing.extend(key for key in keys if key not in exported)
        for path, source in made_of.items():
            for layer, key in enumerate(source.keys):
                if key in exported:
                    values = source.transform.from_ours(_layer(found[path], layer, source.stacked))
                    same = _hash(values) == _hash(_layer(exported[key], 0, False))
                    (verdict.equal if same else verdict.different).append(key)
    return verdict


def _hash(values: np.ndarray) -> str:
    header = f"{values.dtype}{values.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(values).tobytes()).hexdigest()


def _model(folder: Path) -> TumorChainConfig:
    path = folder / "config.json"
    try:
        return TumorChainConfig.from_dict(_read_config(folder)["model"])
    except (KeyError, TypeError, AttributeError) as error:
        found, hint = repr(str(error)), "export it again"
        raise InputError(path, "model", found, "a TumorChain", hint) from error


def _parts(
    folder: Path, config: TumorChainConfig, shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[Part, dict[str, Source]]]:
    """The files that a model has, each with what our parameters in it are made of."""
    parts = []
    for part in _all_parts(config):
        like = {
            path.removeprefix(part.prefix): jax.ShapeDtypeStruct(shape, jnp.float32)
            for path, shape in shapes.items()
            if path.startswith(part.prefix)
            and (path.endswith(("/lora_a", "/lora_b")) and part.prefix == "decoder/")
            is part.adapters
        }
        if strange := [path for path in like if "/lora_" in path and not part.adapters]:
            expected, hint = "adapters in the decoder alone", "merge them first"
            raise InputError(folder, part.prefix + strange[0], "an adapter", expected, hint)
        if like:
            made_of = sources(part.table, like)
            parts.append((part, {part.prefix + path: made_of[path] for path in like}))
    return parts


def _their_shape(source: Source, shape: tuple[int, ...]) -> tuple[int, ...]:
    layer = shape[1:] if source.stacked else shape
    return source.transform.from_ours(np.broadcast_to(np.int8(0), layer)).shape


def _layer(tensor: Tensor, layer: int, stacked: bool) -> np.ndarray:
    """One layer of a tensor, or all of it."""
    shape = tensor.shape[1:] if stacked else tensor.shape
    start = tensor.start + layer * prod(shape) * tensor.dtype.itemsize
    return np.fromfile(tensor.file, tensor.dtype, prod(shape), offset=start).reshape(shape)


def _check(path: Path, found: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for key in sorted(found.keys() | shapes.keys()):
        have = (found[key].shape, found[key].dtype) if key in found else "no such tensor"
        want = (shapes[key], FLOAT32) if key in shapes else "no such tensor"
        if have != want:
            hint = "put the weights and the config.json of one model together"
            raise InputError(path, key, str(have), str(want), hint)


def _write_companions(source: Path, output: Path, config: TumorChainConfig) -> None:
    shutil.copyfile(source / "config.json", output / "config.json")
    folder = output / LANGUAGE_MODEL
    tokenizer = Tokenizer.load(source, config.template.special_tokens)
    tokenizer.backend.save_pretrained(folder)
    # As it is in the checkpoint, to the byte.
    shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
    fields = language_model(config.decoder).transformers_config(config.decoder)
    _write_json(folder / "config.json", fields)
    ends = {"eos_token_id": tokenizer.im_end, "pad_token_id": tokenizer.pad, "do_sample": False}
    _write_json(folder / "generation_config.json", ends)
    if config.lora:
        _write_json(output / ADAPTER / adapter.CONFIG, _adapter_config(config.lora, config))


def _adapter_config(lora: LoRA, config: TumorChainConfig) -> dict:
    """PEFT's configuration of our adapters: one rank and one alpha for each projection."""
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


def _write_json(path: Path, values: dict) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")
