"""The data set of a TumorChain training, checked against its configuration.

`train` and `preflight` both open it here, so that one refuses what the other does.
"""

from pathlib import Path

from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote, write_file
from tumorchain_jax.core.remote import (
    as_path,
    cached_folder,
    local_copy,
    upload,
)
from tumorchain_jax.data.dataset import check_preprocess, preprocess_values, read_manifest
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.pipeline import ExampleSource, Layout
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.parallel.processes import barrier, is_primary
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.settings import PatientSettings
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights.measured import TRAINING, read_measured
from tumorchain_jax.weights.model_folder import check_vocabulary, weights_sha256
from tumorchain_jax.weights.seeds import Seeds

MANIFEST, TOKENIZER = "dataset.json", "tokenizer.json"


def data_folder(config: ConfigDict, workdir: AnyPath) -> Path:
    """The data set on this machine, made first if the configuration asks for phantoms.

    Of a folder in an object store it is a local copy.

    Raises:
        InputError: the folder holds another data set, or the store has none.
    """
    folder = as_path(config.data.folder) if config.data.folder else workdir / "data"
    if config.data.phantoms and is_primary():
        made = cached_folder(folder)
        vocab_size = config.model.decoder.vocab_size
        first_seed, count = config.data.first_seed, config.data.phantoms
        settings = PatientSettings(config.data.phantom_kind, config.data.anatomies)
        preprocess, crops = preprocess_of(config), config.model.crop
        _take_tokenizer(config, made)
        write_phantoms(
            made, first_seed, count, preprocess, vocab_size, settings=settings, crops=crops
        )
        if is_remote(folder) and not (folder / MANIFEST).exists():
            upload(made, folder, last=[MANIFEST])
    barrier("data")
    return local_copy(folder)


def _take_tokenizer(config: ConfigDict, folder: Path) -> None:
    """Give phantoms that are to be made the tokenizer of the model that is trained on."""
    if not config.init or (folder / MANIFEST).is_file():
        return
    tokenizer = local_copy(as_path(config.init.split(",")[0])) / TOKENIZER
    if tokenizer.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / TOKENIZER, tokenizer.read_bytes())


def open_dataset(config: ConfigDict, folder: Path) -> tuple[ExampleSource, Tokenizer]:
    """The training examples of a data set, and its tokenizer.

    Raises:
        InputError: the folder is no data set; its grid, window, tokenizer or split do not fit; or
            it has too few rows for a batch.
    """
    preprocessing = preprocess_values(preprocess_of(config), config.model.crop)
    check_preprocess(folder, read_manifest(folder), preprocessing, "name another folder")
    check_split(folder)
    tokenizer = Tokenizer.load(folder, config.model.template.special_tokens)
    check_vocabulary(folder, tokenizer, config.model)
    source = ExampleSource(folder, layout_of(config))
    if len(source) < config.batch_size:
        found, expected = str(len(source)), f"at least the {config.batch_size} of a batch"
        raise InputError(folder, "rows", found, expected, "lower config.batch_size, or add data")
    return source, tokenizer


def preprocess_of(config: ConfigDict) -> PreprocessConfig:
    """The model's grid and the CT window."""
    model: TumorChainConfig = config.model
    return PreprocessConfig(model.encoder.image, config.window.level, config.window.width)


def layout_of(config: ConfigDict) -> Layout:
    """The shapes of an example, from a training configuration."""
    model: TumorChainConfig = config.model
    return Layout(
        roi=model.roi,
        length=config.data.length,
        history=config.history,
        initial_roi=config.initial_roi,
        cot=config.cot,
        iir=config.iir,
        template=model.template,
    )


def training_seeds(config: ConfigDict, data: Path) -> list[Seeds]:
    """The seeds of the digital patients in a data set, and of those that `config.init` was of."""
    seeds: list[Seeds] = []
    manifest = read_manifest(data)
    if {"first_seed", "count"} <= manifest.keys():
        seeds.append((manifest["first_seed"], manifest["count"]))
    if config.init:
        folder = local_copy(as_path(config.init.split(",")[0]))
        if (folder / TRAINING).is_file():
            seeds += read_measured(folder, weights_sha256(folder)).training
    return sorted({*seeds})
