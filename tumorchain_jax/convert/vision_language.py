"""A Qwen2.5-VL that was trained here, as what PyTorch loads.

model/      a Hugging Face folder: weights, configuration, tokenizer, limits of pictures
adapter/    a PEFT folder over it, if the model has LoRA
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tumorchain_jax.convert import adapter
from tumorchain_jax.convert.adapter import Base, in_memory
from tumorchain_jax.convert.checkpoint_parts import (
    FLOAT32,
    File,
    Part,
    check_tensors,
    compare_files,
    files_of,
    write_files,
)
from tumorchain_jax.convert.format import Facts, Format, Options
from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.convert import transformers_config
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig, abstract_params
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig, preprocessor_config
from tumorchain_jax.weights.tensor_files import Tensor, read_file
from tumorchain_jax.weights.vision_language_folder import (
    WEIGHTS,
    is_vision_language,
    read_vision_language_config,
)

MODEL, ADAPTER, TOKENIZER = "model", "adapter", "tokenizer.json"


def export_vision_language(source: Path, output: Path, options: Options) -> int:
    """Convert a checkpoint to the folder for PyTorch; returns how many tensors were written.

    Raises:
        InputError: the checkpoint is damaged.
    """
    config, pictures, found = _open(source)
    tokenizer = Tokenizer.load(source)
    with atomic_directory(output) as staging:
        count = write_files(staging, _files(source, config), found)
        tokenizer.backend.save_pretrained(staging / MODEL)
        # As it is in the checkpoint, to the byte.
        shutil.copyfile(source / TOKENIZER, staging / MODEL / TOKENIZER)
        for name, values in _settings(config, pictures, tokenizer).items():
            (staging / name).write_text(json.dumps(values, indent=2) + "\n")
    return count


def inspect_vision_language(source: Path, options: Options) -> Facts:
    """Describe a checkpoint, as plain values.

    Raises:
        InputError: it is damaged.
    """
    config, _, found = _open(source)
    parameters = {
        path: {"shape": list(found[path].shape), "from": f"{each.file}: {made_of.keys[0]}"}
        for each in _files(source, config)
        for path, made_of in each.sources.items()
    }
    return {
        "family": "vision_language (a checkpoint)",
        "config": config.to_dict(),
        "tensors": len(found),
        "bytes": sum(tensor.nbytes for tensor in found.values()),
        "dtypes": [FLOAT32.name],
        "parameters": parameters,
        "passthrough": [],
        "ignored": [],
    }


def verify_vision_language(source: Path, converted: Path) -> Verdict:
    """Compare a checkpoint with what was exported from it, tensor by tensor, by hash.

    Args:
        source, converted: the two, in either order.

    Raises:
        InputError: a folder is damaged.
    """
    ours, theirs = (source, converted) if is_vision_language(source) else (converted, source)
    config, pictures, found = _open(ours)
    verdict = compare_files(theirs, _files(ours, config), found)
    expected = _settings(config, pictures, Tokenizer.load(ours))
    for name, values in expected.items():
        same = (theirs / name).is_file() and read_json(theirs / name) == values
        (verdict.equal if same else verdict.different).append(name)
    copy = theirs / MODEL / TOKENIZER
    same = copy.is_file() and copy.read_bytes() == (ours / TOKENIZER).read_bytes()
    (verdict.equal if same else verdict.different).append(TOKENIZER)
    return verdict


def _refuse_import(source: Path, output: Path, options: Options) -> int:
    expected, hint = "published weights", "train from it as it is, with --config.init"
    raise InputError(source, "input", "a checkpoint of ours", expected, hint)


def _open(folder: Path) -> tuple[QwenVLConfig, PictureConfig, dict[str, Tensor]]:
    """Open the weights of a checkpoint, which must be those of its configuration."""
    config, pictures = read_vision_language_config(folder)
    found = read_file(folder / WEIGHTS)
    shapes = {path: (FLOAT32, leaf.shape) for path, leaf in abstract_params(config).items()}
    check_tensors(folder / WEIGHTS, found, shapes)
    return config, pictures, found


def _files(folder: Path, config: QwenVLConfig) -> list[File]:
    base = Base(config.decoder, config.tower)
    adapters = f"{ADAPTER}/{adapter.STEM}.safetensors"
    parts = (
        Part(f"{MODEL}/{WEIGHTS}", "", base.table),
        Part(adapters, "", base.lora_table, adapters=True, spelled=_newer),
    )
    return files_of(folder, parts, abstract_params(config))


def _newer(key: str) -> str:
    """The key of an adapter as transformers from 4.52 on has it."""
    return adapter.PREFIX + in_memory(key.removeprefix(adapter.PREFIX))


def _settings(
    config: QwenVLConfig, pictures: PictureConfig, tokenizer: Tokenizer
) -> Mapping[str, dict[str, Any]]:
    """What the small files hold, by name."""
    ends = {"eos_token_id": tokenizer.im_end, "pad_token_id": tokenizer.pad, "do_sample": False}
    special = {
        "image_token_id": tokenizer.image_pad,
        "vision_start_token_id": tokenizer.vision_start,
        "vision_end_token_id": tokenizer.vision_end,
    }
    settings: dict[str, dict[str, Any]] = {
        f"{MODEL}/config.json": transformers_config(config.decoder, config.tower) | special,
        f"{MODEL}/generation_config.json": ends,
        f"{MODEL}/preprocessor_config.json": preprocessor_config(pictures, config.tower),
    }
    if config.lora:
        settings[f"{ADAPTER}/{adapter.CONFIG}"] = _adapter_config(config)
    return settings


def _adapter_config(config: QwenVLConfig) -> dict[str, Any]:
    """PEFT's configuration: each adapted layer by its whole name."""
    assert config.lora is not None
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for module, names in Base(config.decoder, config.tower).modules().items():
        if config.lora.adapts(module):
            for name in map(in_memory, names):
                ranks[name] = config.lora.rank_of(module)
                alphas[name] = config.lora.alpha_of(module)
    return adapter.adapter_config(config.lora, ranks, alphas)


VISION_LANGUAGE = Format(
    name="a trained Qwen2.5-VL",
    detect=is_vision_language,
    inspect=inspect_vision_language,
    to_ours=_refuse_import,
    to_theirs=export_vision_language,
    verify=verify_vision_language,
)
