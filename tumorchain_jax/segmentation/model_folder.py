"""A segmentation model as a folder: nnU-Net's own layout, with safetensors for pickles.

    plans.json, dataset.json     as nnU-Net wrote them
    checkpoint.json              of its checkpoints: configuration, trainer, axes of mirroring
    fold_N/model.safetensors     float32 parameters by path

A folder of nnU-Net itself, with `fold_N/checkpoint_final.pth`, is read as well and can be written.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import Fields, read_json
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.unet3d import convert
from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.models.weight_map import KEEP, from_ours
from tumorchain_jax.segmentation.plans import DATASET, PLANS, Plan, read_plan
from tumorchain_jax.weights.matching import Family, Shapes, load_arrays, module_shapes
from tumorchain_jax.weights.pickles import unpickle_nnunet
from tumorchain_jax.weights.tensor_files import Tensor, read_file, write_arrays

Params = dict[str, Any]
CHECKPOINT, WEIGHTS, PICKLE = "checkpoint.json", "model.safetensors", "checkpoint_final.pth"
MOST_FOLDS = 100
MIRRORING = "inference_allowed_mirroring_axes"


@dataclass(frozen=True)
class SegmentationModel:
    """A segmentation network of one or several folds, whose logits are averaged.

    Attributes:
        folds: the parameters of each training, float32.
        sha256: of plan and parameters, the same for both kinds of folder (see `digest`).
        source: the folder, for messages.
        names: of the folds, as nnU-Net counts them.
    """

    plan: Plan
    folds: tuple[Params, ...]
    sha256: str
    source: str
    names: tuple[str, ...] = ("0",)


class OpenFold(NamedTuple):
    """The weights of one fold, not yet read.

    Attributes:
        path: of their file.
        tensors: valid as long as the fold is open.
    """

    path: Path
    plan: Plan
    family: Family
    tensors: Mapping[str, Tensor]


def digest(plan: Plan, folds: Sequence[Params]) -> str:
    """Return the SHA-256 of all that decides a model's labels."""
    sums = hashlib.sha256()
    about = [plan.plans_json, plan.dataset_json, plan.configuration, plan.mirror_axes]
    sums.update(json.dumps(about, sort_keys=True).encode())
    for fold in folds:
        for path, leaf in sorted(flatten(fold).items()):
            sums.update(f"{path} {leaf.shape}".encode())
            sums.update(np.ascontiguousarray(leaf, np.float32).tobytes())
    return sums.hexdigest()


def load_segmentation_model(
    folder: Path, folds: Collection[int | str] | None = None
) -> SegmentationModel:
    """Read a model folder, ours or nnU-Net's.

    Args:
        folds: to be read; None: as nnU-Net, all with a number, or else the one of all scans.

    Raises:
        InputError: the folder is not whole; the plan cannot be run here (see `read_plan`); a pickle
            is damaged or needs more than tensors; the weights are of another plan.
    """
    names = fold_names(folder, folds)
    plans, params = [], []
    for name in names:
        with open_fold(folder, name) as fold:
            plans.append(fold.plan)
            params.append(_read(fold))
    for name, plan in zip(names, plans, strict=True):
        if plan.configuration != plans[0].configuration:
            expected = f"{plans[0].configuration}, as fold_{names[0]}"
            hint = "name folds of one configuration"
            raise InputError(folder, f"fold_{name}", plan.configuration, expected, hint)
    return SegmentationModel(
        plans[0], tuple(params), digest(plans[0], params), str(folder), tuple(names)
    )


def fold_names(folder: Path, folds: Collection[int | str] | None = None) -> list[str]:
    """List the folds that `load_segmentation_model` reads.

    Raises:
        InputError: there is none, or not one that was asked for.
    """
    there = [
        name
        for name in (*map(str, range(MOST_FOLDS)), "all")
        if any((folder / f"fold_{name}" / file).is_file() for file in (WEIGHTS, PICKLE))
    ]
    if not there:
        expected, hint = f"{WEIGHTS} or {PICKLE} in it", "name the folder with plans.json"
        raise InputError(folder, "fold_0", "none", expected, hint)
    if folds is None:
        return [name for name in there if name != "all"] or there
    for name in map(str, folds):
        if name not in there:
            hint = "use an existing fold"
            raise InputError(folder, f"fold_{name}", "none", f"one of {' '.join(there)}", hint)
    return [*map(str, folds)]


@contextmanager
def open_fold(folder: Path, name: str) -> Iterator[OpenFold]:
    """Open one fold of a model folder, with the expected shapes of its tensors.

    Raises:
        InputError: as `load_segmentation_model`.
    """
    fold = folder / f"fold_{name}"
    with TemporaryDirectory() as scratch:
        if ours := (fold / WEIGHTS).is_file():
            path, described = fold / WEIGHTS, folder / CHECKPOINT
            tensors, values = read_file(path), read_json(described)
        else:
            path = described = fold / PICKLE
            tensors, values = unpickle_nnunet(path, Path(scratch))
        plan = _plan(folder, Fields(described, "", values))
        table = [(r"(.*)", r"\1", KEEP)] if ours else convert.table(plan.network)
        shapes, config = _shapes(plan.network), {"segmentation": asdict(plan.network)}
        family = Family(
            *("nnunet", config, table, shapes, convert.RENAMES),
            copies=() if ours else convert.COPIES,
            copies_hint="download it again",
        )
        yield OpenFold(path, plan, family, tensors)


def _plan(folder: Path, checkpoint: Fields) -> Plan:
    """The plan of the checkpoint's configuration, with mirror axes and trainer."""
    axes = checkpoint.values.get(MIRRORING) or []
    if not isinstance(axes, list) or not all(axis in (0, 1, 2) for axis in axes):
        checkpoint.refuse(MIRRORING, "axes of a volume, or none")
    plan = read_plan(folder, checkpoint.text("configuration"))
    return replace(plan, mirror_axes=tuple(axes), trainer=checkpoint.text("trainer_name"))


@cache
def _shapes(config: UNet3DConfig) -> Shapes:
    tile = jax.ShapeDtypeStruct((1, *config.multiple, config.in_channels), jnp.float32)
    return module_shapes(UNet3D(config), tile)


def _read(fold: OpenFold) -> Params:
    arrays = load_arrays(fold.path, fold.family, fold.tensors)
    return unflatten({path: np.ascontiguousarray(x, np.float32) for path, x in arrays.items()})


def save_segmentation_model(model: SegmentationModel, folder: Path) -> None:
    """Write a model folder without pickles; it appears whole.

    Raises:
        InputError: it is there already.
    """
    with atomic_directory(folder) as part:
        _write_plan(model.plan, part)
        checkpoint = {
            "configuration": model.plan.configuration,
            "trainer_name": model.plan.trainer,
            MIRRORING: list(model.plan.mirror_axes) or None,
        }
        _write_json(part / CHECKPOINT, checkpoint)
        for name, fold in zip(model.names, model.folds, strict=True):
            weights = part / f"fold_{name}" / WEIGHTS
            weights.parent.mkdir()
            write_arrays(weights, flatten(fold))


def export_nnunet(model: SegmentationModel, folder: Path) -> None:
    """Write a model folder that nnU-Net's own predictor runs; it appears whole.

    Raises:
        InputError: it is there already; PyTorch is not installed.
    """
    if find_spec("torch") is None:
        expected, hint = "PyTorch, to write pickles", "install tumorchain-jax[torch]"
        raise InputError(folder, "pickle", "no torch here", expected, hint)
    import torch

    plan = model.plan
    table = convert.table(plan.network)
    with atomic_directory(folder) as part:
        _write_plan(plan, part)
        for name, fold in zip(model.names, model.folds, strict=True):
            arrays = from_ours(table, fold)
            # One tensor under several names is stored once.
            weights = {key: torch.from_numpy(values) for key, values in arrays.items()}
            checkpoint = {
                "network_weights": convert.with_copies(weights),
                "trainer_name": plan.trainer,
                MIRRORING: plan.mirror_axes or None,
                "init_args": {
                    "plans": dict(plan.plans_json),
                    "configuration": plan.configuration,
                    "fold": name if name == "all" else int(name),
                    "dataset_json": dict(plan.dataset_json),
                },
            }
            (part / f"fold_{name}").mkdir()
            torch.save(checkpoint, part / f"fold_{name}" / PICKLE)


def _write_plan(plan: Plan, folder: Path) -> None:
    _write_json(folder / PLANS, plan.plans_json)
    _write_json(folder / DATASET, plan.dataset_json)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n")
