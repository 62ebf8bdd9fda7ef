"""Plan of the experiments: the runs, and how each configuration differs from the full method's.

They are the paper's ablations (Table 1, last rows; Table 8) and design choices that it leaves open.
`configs/experiments.py` describes each. Of a model with crops (`configs/experiments_lens.py`) these
are the ablations of Table 1, and the model without crops.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig

LENS = "without-lens"
SEEDED = ("full", "without-iir", "without-cot", "without-both", LENS)
"""Experiments that run with several seeds; the others are compared with the first."""
ATTENTION = LoRA((r"decoder/.*/(q|k|v|o)_proj",), rank=8, alpha=16.0)
ADAPTERS = r".*/lora_[ab]"


@dataclass(frozen=True)
class Run:
    """One training and its evaluation.

    Attributes:
        name: of the experiment.
        changes: flat fields of the configuration (`data.length`) and their values here.
        adapts: it starts from the checkpoint of the first run, on other patients.
    """

    name: str
    seed: int
    changes: dict[str, Any]
    adapts: bool = False

    def folder(self, workdir: Path) -> Path:
        """Folder of the run."""
        return workdir / "runs" / f"{self.name}-seed{self.seed}"


def plan(config: ConfigDict) -> list[Run]:
    """List all runs in the order in which they are made; adapting runs start from the first.

    Args:
        config: as `configs/experiments.py`.

    Raises:
        InputError: it lacks the fields of experiments.
    """
    for field in ("seeds", "test", "adaptation"):
        if field not in config:
            raise InputError(
                "--config", field, "no such field", "a configuration of experiments", "see configs/"
            )
    model: TumorChainConfig = config.model
    changes: dict[str, dict[str, Any]] = {
        "full": {},
        "without-iir": {"iir": False},
        "without-cot": {"cot": False},
        "without-both": {"cot": False, "iir": False},
    }
    if model.crop:
        changes[LENS] = {"model": _without_crops(model)}
        return _seeded(changes, config.seeds)
    changes |= {f"alpha-{alpha:g}": {"alpha": alpha} for alpha in (0.0, 0.1, 0.5, 1.5)}
    changes |= {
        "roi-global": {"model": replace(model, roi_source="global")},
        "history-latest": {"history": "latest"},
    }
    changes |= {
        f"roi-slots-{slots}": {"model": replace(model, roi_slots=slots)}
        for slots in (16, 32)
        if slots != model.roi_slots  # which is full
    }
    adaptation = {
        "data.phantoms": config.adaptation.phantoms,
        "data.first_seed": config.adaptation.first_seed,
        "optimizer": config.adaptation.optimizer,
        "learning_rate": config.adaptation.learning_rate,
    }
    adapting = {
        "lora": adaptation
        | {
            "model": replace(model, lora=ATTENTION),
            "trainable": ((ADAPTERS, True), (r"decoder/.*", False), *config.trainable),
            # Adapters train well at a higher learning rate than the full weights.
            "lr_multiplier": ((ADAPTERS, 10.0), *config.lr_multiplier),
        },
        "full-finetuning": adaptation,
    }
    runs = _seeded(changes, config.seeds)
    return runs + [Run(name, 0, adapting[name], adapts=True) for name in adapting]


def _seeded(changes: dict[str, dict[str, Any]], seeds: int) -> list[Run]:
    """Runs of several seeds for the experiments that have them, and of the first for the others."""
    return [
        Run(name, seed, of_name)
        for name, of_name in changes.items()
        for seed in range(seeds if name in SEEDED else 1)
    ]


def _without_crops(model: TumorChainConfig) -> TumorChainConfig:
    """The same model on the scan alone; an organ's tokens are the cells that its mask covers best.

    It has as many slots for them, and an encoder of the same size that is pretrained without crops.
    """
    return replace(model, roi_source="encoder", roi_rank="coverage", crop=None)


def select(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """Select the runs of some experiments, or of all if none is named.

    Raises:
        InputError: no experiment has such a name.
    """
    known = list(dict.fromkeys(run.name for run in runs))
    for name in names:
        if name not in known:
            raise InputError("command line", "--only", name, " ".join(known), "name some of them")
    return [run for run in runs if not names or run.name in names]


def configure(config: ConfigDict, run: Run, base: Run, workdir: Path) -> ConfigDict:
    """Make the training configuration of a run.

    Args:
        base: whose checkpoint an adapting run starts from.

    Raises:
        InputError: the configuration lacks a field that the run changes.
    """
    folders = {"data.folder": str(workdir / "data"), "pretrain.folder": str(workdir / "pretrain")}
    if run.name == LENS:  # another encoder: it has seen no crops
        folders["pretrain.folder"] = str(workdir / "pretrain-without-lens")
    if run.adapts:
        folders["data.folder"] = str(workdir / "adaptation-data")
        folders["init"] = str(base.folder(workdir) / "export")
    changed = config.copy_and_resolve_references()
    try:
        changed.update_from_flattened_dict({"seed": run.seed, **run.changes, **folders})
    except (KeyError, TypeError) as error:
        found = str(error.args[0]).splitlines()[0]
        raise InputError(
            "--config", run.name, found, "the fields that it changes", "see configs/"
        ) from error
    return changed
