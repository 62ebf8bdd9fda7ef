import json
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.phantoms.body import TRUNK
from tumorchain_jax.segmentation.model_folder import load_segmentation_model
from tumorchain_jax.segmentation.plans import Intensity, read_plan
from tumorchain_jax.training.registry import build_program, train
from tumorchain_jax.training.segmentation.patches import PatchSource, write_labelled_phantoms
from tumorchain_jax.training.segmentation.plan import write_plan

pytestmark = pytest.mark.program
CONFIG = Path(__file__).parents[3] / "configs" / "nano_segmenter.py"
FIRST_SEED, PHANTOMS = 1_000_005, 4
INTENSITY = Intensity(-20.0, 100.0, -190.0, 290.0)


def _config(data: Path, steps: int) -> ConfigDict:
    """The shipped one, made tiny."""
    config = read_config(CONFIG, [])
    config.segmenter.network = UNet3DConfig(
        1, 4, (4, 8), ((1, 1, 1), (2, 2, 2)), ((3, 3, 3),) * 2, (1, 1), (1,)
    )
    config.segmenter.spacing = (24.0, 24.0, 24.0)
    config.segmenter.patch_size = (12, 8, 12)
    config.segmenter.labels = ("liver", "lung_lower_lobe_left", "lung_lower_lobe_right")
    config.data.folder = str(data)
    config.data.first_seed, config.data.phantoms = FIRST_SEED, PHANTOMS
    config.data.phantom_kind = "simple"  # takes less time to make
    config.optimizer = "adamw"  # takes less time to compile
    config.steps, config.log_every = steps, 1
    config.checkpoint.every = 4
    return config


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    write_plan(folder, _config(folder, 1).segmenter, INTENSITY)
    write_labelled_phantoms(folder, read_plan(folder), FIRST_SEED, PHANTOMS, processes=1)
    (folder / "intensity.json").write_text(json.dumps(vars(INTENSITY)))
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("run")
    train(_config(data, 40), workdir)
    return workdir


@pytest.mark.system(haste=True)
def test_training_lowers_the_loss(trained: Path) -> None:
    lines = (trained / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    loss, dice = ([values[name] for values in metrics] for name in ("loss", "dice"))
    assert len(loss) == 40
    assert np.mean(loss[-5:]) < np.mean(loss[:5]) - 0.5
    assert np.mean(dice[-5:]) > np.mean(dice[:5])


def test_scans_of_another_kind_of_patients_are_refused(data: Path, tmp_path: Path) -> None:
    config = _config(data, 1)
    config.data.phantom_kind = "realistic"
    with pytest.raises(InputError, match="name another folder"):
        train(config, tmp_path)


@pytest.mark.system(haste=True)
def test_export_is_a_model_folder(trained: Path) -> None:
    model = load_segmentation_model(trained / "export")
    plan = model.plan
    assert plan.network == _config(trained, 1).segmenter.network
    assert plan.intensities == (INTENSITY,)
    assert plan.spacing == (24.0, 24.0, 24.0)
    assert list(plan.labels) == ["background", *_config(trained, 1).segmenter.labels]
    assert (plan.mirror_axes, plan.trainer) == ((), "nnUNetTrainerNoMirroring")
    (fold,) = model.folds
    assert all(np.isfinite(leaf).all() for leaf in flatten(fold).values())


def test_data_of_another_configuration_are_refused(data: Path, tmp_path: Path) -> None:
    config = _config(data, 1)
    config.data.phantoms = 5
    with pytest.raises(InputError, match=r"phantoms\.json"):
        train(config, tmp_path)


def test_task_is_chosen_by_the_configuration(data: Path) -> None:
    """What is compiled ahead of time is the step of the segmenter, whole on each device."""
    config = _config(data, 1)
    mesh = make_mesh(dict(config.mesh), jax.devices()[:1])
    program = build_program(config, mesh)
    assert program.batch["image"].shape == (1, 12, 8, 12, 1)
    assert all(leaf.sharding.is_fully_replicated for leaf in program.params.values())


def test_batch_is_described_by_its_scans(data: Path) -> None:
    """The named scans are those that a batch is cut from."""
    source = PatchSource(data, (12, 8, 12))
    names = [name for step in (1, 2) for name in source.names(2, 0, step)]
    assert sorted(names) == [f"scan {number}" for number in range(PHANTOMS)]


def test_shipped_configuration_names_all_organs_of_digital_patients() -> None:
    segmenter = read_config(CONFIG, []).segmenter
    assert len(set(segmenter.labels)) == len(segmenter.labels)
    assert {TOTALSEGMENTATOR[part.label] for part in TRUNK} <= set(segmenter.labels)
    assert np.all(np.mod(segmenter.patch_size, segmenter.network.multiple) == 0)
