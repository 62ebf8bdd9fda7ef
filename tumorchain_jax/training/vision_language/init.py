"""Where the parameters of a Qwen2.5-VL start: imported parts, an export, or random weights."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from tumorchain_jax.convert.imported import MANIFEST, SOURCE, Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.models.families import decoder_to_dict
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig, abstract_params, init_params
from tumorchain_jax.training.initial import Places, place, random_arrays
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.vision_language_folder import VisionLanguageFolder, load_vision_language

ANOTHER = "set config.model to the checkpoint's"
ADAPTERS = ("/lora_a", "/lora_b")


def start(config: ConfigDict, program: Program) -> TrainState:
    """The state before the first step; parameters that `config.init` does not have are random.

    Raises:
        InputError: as `open_init`.
    """
    params: dict[str, jax.Array] = {}
    places = program.params
    for opened in open_init(config):
        if isinstance(opened, Imported):
            params |= flatten(opened.restore(_places_of(opened, places)))
        else:
            params |= {path: place(leaf, places[path]) for path, leaf in opened.params.items()}
    missing = {path: leaf for path, leaf in places.items() if path not in params}
    random = random_arrays(partial(init_params, config.model), config.seed, missing)
    return program.start(params | random)


def open_init(config: ConfigDict) -> list[Imported | VisionLanguageFolder]:
    """Open what `config.init` names, and compare it with the model; no array is placed.

    Raises:
        InputError: it is of another model, or only a part of one; or the adapters' scale is another
            than the model's.
    """
    opened: list[Imported | VisionLanguageFolder] = []
    if not config.init:
        return opened
    model: QwenVLConfig = config.model
    expected = {path: leaf.shape for path, leaf in abstract_params(model).items()}
    found: dict[str, tuple[int, ...]] = {}
    for folder in _folders(config):
        if (folder / MANIFEST).is_file():
            imported = Imported(folder)
            _check_config(folder, imported.config, model)
            opened.append(imported)
            shapes = {path: spec.shape for path, spec in imported.arrays.specs.items()}
        else:
            exported = load_vision_language(folder)
            _check_config(folder, exported.model.to_dict(), model)
            opened.append(exported)
            shapes = {path: leaf.shape for path, leaf in exported.params.items()}
        if twice := sorted(shapes.keys() & found.keys()):
            hint = "name one of the two"
            raise InputError(folder, twice[0], "what another folder fills too", "one of each", hint)
        found |= shapes
    wanted = {
        path: shape
        for path, shape in expected.items()
        if path in found or not path.endswith(ADAPTERS)  # new adapters are drawn at random
    }
    hint = ANOTHER
    if not any(path.startswith("tower/") for path in found):
        hint = "import the base with --tower"
    check_shapes(config.init, found, wanted, hint)
    return opened


def open_tokenizer(config: ConfigDict) -> Tokenizer:
    """The tokenizer that a configuration names, or else that of `init`, or else of the data.

    Raises:
        InputError: it names none, or one with more ids than the model has embeddings.
    """
    candidates = [local_copy(as_path(config.tokenizer))] if config.tokenizer else []
    if not candidates and config.init:
        for folder in _folders(config):
            inner = folder / SOURCE if (folder / MANIFEST).is_file() else folder
            candidates += [inner] if (inner / "tokenizer.json").is_file() else []
    if not candidates and config.data.folder:
        folder = local_copy(as_path(config.data.folder))
        candidates += [folder] if (folder / "tokenizer.json").is_file() else []
    if not candidates:
        expected, hint = "a folder with tokenizer.json", "set --config.tokenizer"
        raise InputError("config", "tokenizer", "none", expected, hint)
    tokenizer = Tokenizer.load(candidates[0])
    ids, most = len(tokenizer.token_bytes), config.model.decoder.vocab_size
    if ids > most:
        expected, hint = f"at most the model's {most}", "set config.model.decoder.vocab_size"
        raise InputError(candidates[0], "tokenizer.json", f"{ids} ids", expected, hint)
    return tokenizer


def _folders(config: ConfigDict) -> list[Path]:
    return [local_copy(as_path(folder)) for folder in config.init.split(",")]


def _places_of(imported: Imported, places: Places) -> Places:
    return {path: places[path] for path in imported.arrays.specs}


def _check_config(folder: Path, found: dict[str, Any], model: QwenVLConfig) -> None:
    """Refuse another architecture, or adapters that are scaled otherwise.

    Shapes alone would not tell: neither the rotary embedding nor alpha is in them.
    """
    parts = {"decoder": decoder_to_dict(model.decoder), "tower": asdict(model.tower)}
    for part in parts.keys() & found.keys():
        given, expected = found[part], parts[part]
        for name in expected:
            if _plain(given.get(name)) != _plain(expected[name]):
                value, wanted = str(given.get(name)), str(expected[name])
                raise InputError(folder, f"{part}.{name}", value, wanted, ANOTHER)
    if not found.get("lora") or not model.lora:
        return
    lora = LoRA.from_dict(found["lora"])
    for path in abstract_params(model):
        module, _, leaf = path.rpartition("/")
        scales = [each.scale_of(module) for each in (lora, model.lora)]
        if leaf == "lora_a" and lora.adapts(module) and scales[0] != scales[1]:
            value, wanted = (f"{scale:g}" for scale in scales)
            raise InputError(folder, f"scale of {module}", value, wanted, "set config.model.lora")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
