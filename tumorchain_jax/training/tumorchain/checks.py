"""Checks of a TumorChain training before it starts, for `preflight`."""

import hashlib
import json
from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.data.dataset import read_manifest, shard_paths
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import abstract_params
from tumorchain_jax.training.memory import check_memory, step_bytes
from tumorchain_jax.training.program import Program, accumulation_on
from tumorchain_jax.training.tumorchain.dataset import open_dataset
from tumorchain_jax.training.tumorchain.initial import open_init

GIB = 2**30


def check_data(config: ConfigDict, workdir: AnyPath) -> str:
    """Open the data set as training does; returns its fingerprint.

    Raises:
        InputError: training would refuse it.
    """
    folder = _data_folder(config, workdir)
    if _are_to_be_made(config, folder):
        return f"{config.data.phantoms} phantoms, to be made in {folder}"
    folder = local_copy(folder)
    open_dataset(config, folder)
    manifest = read_manifest(folder)
    shards = [Path(path) for kind in ("scans", "records") for path in shard_paths(folder, kind)]
    if not shards:
        raise InputError(folder, "scans", "none", "a data set's shards", "complete the folder")
    sizes = {path.name: path.stat().st_size for path in shards}
    digest = hashlib.sha256(json.dumps([manifest, sizes], sort_keys=True).encode())
    for name in ("tokenizer.json", "split.json"):
        digest.update((folder / name).read_bytes())
    gib = sum(sizes.values()) / GIB
    return f"{folder}: {len(shards)} files, {gib:.2f} GiB, sha256 {digest.hexdigest()[:16]}"


def check_init(config: ConfigDict, workdir: AnyPath) -> str:
    """Read the weights of `config.init` and compare them with the model and the tokenizer.

    The tokenizer of phantoms that are not made yet is unknown: it is compared by training.

    Raises:
        InputError: training would refuse them.
    """
    if not config.init:
        return "random weights"
    for folder in config.init.split(","):
        if not as_path(folder).is_dir():
            raise InputError(folder, "config.init", "no such folder", "weights", "check the path")
    folder, tokenizer = _data_folder(config, workdir), None
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.load(local_copy(folder), config.model.template.special_tokens)
    open_init(config, tokenizer, abstract_params(config.model))
    return config.init


def check_batch(config: ConfigDict, mesh: Mesh) -> str:
    """Cut a batch into the parts of a step.

    Raises:
        InputError: it cannot be cut so.
    """
    parts = accumulation_on(config, mesh)
    return f"{config.batch_size} rows in {parts} part{'s' * (parts > 1)}"


def check_step(config: ConfigDict, program: Program, mesh: Mesh) -> str:
    """Compare the memory of a step with what each device has.

    Raises:
        InputError: it does not fit.
    """
    check_memory(config, program, mesh)
    return f"a step needs at least {step_bytes(config, program, mesh) / GIB:.2f} GiB of each device"


def _data_folder(config: ConfigDict, workdir: AnyPath) -> AnyPath:
    return as_path(config.data.folder) if config.data.folder else workdir / "data"


def _are_to_be_made(config: ConfigDict, folder: AnyPath) -> bool:
    return bool(config.data.phantoms) and not (folder / "tokenizer.json").exists()
