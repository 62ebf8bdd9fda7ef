import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.phantoms.body import TRUNK
from tumorchain_jax.segmentation.model_folder import load_segmentation_model
from tumorchain_jax.segmentation.plans import Intensity, read_plan
from tumorchain_jax.training.segmentation.patches import write_labelled_phantoms
from tumorchain_jax.training.segmentation.plan import write_plan
from tumorchain_jax.training.segmentation.train import train_segmenter

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
    train_segmenter(_config(data, 40), workdir)
    return workdir


def test_it_learns(trained: Path) -> None:
    lines = (trained / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    loss, dice = ([values[name] for values in metrics] for name in ("loss", "dice"))
    assert len(loss) == 40
    assert np.mean(loss[-5:]) < np.mean(loss[:5]) - 0.5
    assert np.mean(dice[-5:]) > np.mean(dice[:5])


def test_what_it_writes_is_a_model_folder(trained: Path) -> None:
    model = load_segmentation_model(trained / "export")
    plan = model.plan
    assert plan.network == _config(trained, 1).segmenter.network
    assert plan.intensities == (INTENSITY,)
    assert plan.spacing == (24.0, 24.0, 24.0)
    assert list(plan.labels) == ["background", *_config(trained, 1).segmenter.labels]
    assert (plan.mirror_axes, plan.trainer) == ((), "nnUNetTrainerNoMirroring")
    (fold,) = model.folds
    assert all(np.isfinite(leaf).all() for leaf in flatten(fold).values())


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    trained: Path, data: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    shutil.copytree(trained, half)
    shutil.rmtree(half / "checkpoints" / "40")
    shutil.rmtree(half / "export")
    train_segmenter(_config(data, 40), half)
    ours, theirs = (
        flatten(load_segmentation_model(run / "export").folds[0]) for run in (half, trained)
    )
    for path, leaf in theirs.items():
        np.testing.assert_array_equal(ours[path], leaf)


def test_other_data_are_refused(data: Path, tmp_path: Path) -> None:
    config = _config(data, 1)
    config.data.phantoms = 5
    with pytest.raises(InputError, match=r"phantoms\.json"):
        train_segmenter(config, tmp_path)


def test_the_command_chooses_it_by_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ConfigDict] = []
    monkeypatch.setattr(
        "tumorchain_jax.training.segmentation.train.train_segmenter",
        lambda config, workdir: seen.append(config),
    )
    assert main(["train", "--config", str(CONFIG), "--workdir", str(tmp_path)]) == 0
    assert seen[0].segmenter.network.classes == len(seen[0].segmenter.labels) + 1


def test_the_shipped_configuration_names_all_that_digital_patients_have() -> None:
    segmenter = read_config(CONFIG, []).segmenter
    assert len(set(segmenter.labels)) == len(segmenter.labels)
    assert {TOTALSEGMENTATOR[part.label] for part in TRUNK} <= set(segmenter.labels)
    assert np.all(np.mod(segmenter.patch_size, segmenter.network.multiple) == 0)
