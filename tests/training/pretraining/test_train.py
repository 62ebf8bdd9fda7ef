import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.training.pretraining.source import TrainingScans
from tumorchain_jax.training.pretraining.train import (
    ATTENTION_OUT,
    GAIN,
    NOISE,
    OFFSET,
    PRETRAINED,
    add_noise,
    pretrain_encoder,
    stage_lines,
    turn,
)

pytestmark = pytest.mark.program


def _config(model: TumorChainConfig, alone: int, whole: int = 0) -> ConfigDict:
    return ConfigDict(
        {
            "model": model,
            "seed": 0,
            "pretrain": {
                "folder": "",
                "patch_stage": {
                    "steps": alone,
                    "crops_per_scan": 2,
                    "patches_per_batch": 24,
                    "learning_rate": 3e-2,
                },
                "scan_stage": {"steps": whole, "scans": 2, "learning_rate": 1e-2},
                "auxiliary": {"segment": 0.0, "content": 0.0},
                "curriculum": {"share": 0.0, "from_mm": 40.0, "to_mm": 8.0},
            },
            "mesh": {"fsdp": -1},
            "optimizer": "adamw",
            "warmup_ratio": 0.1,
            "weight_decay": 0.0,
            "clip_norm": 1.0,
            "log_every": 1,
            "checkpoint": {"every": 10, "minutes": 0.0, "keep": 1, "best": "loss"},
            "watch": {"profile": "", "wandb": "", "hang_timeout_s": 0.0},
        }
    )


PATCH_STEPS, SCAN_STEPS = 40, 20


@pytest.fixture(scope="module")
def shared(
    phantoms: Path, tiny: TumorChainConfig, tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    """The patch stage in a folder that runs share, then the scan stage in another run."""
    folder = tmp_path_factory.mktemp("pretraining")

    def pretrain(run: str, scan_steps: int) -> dict[str, np.ndarray]:
        config = _config(tiny, PATCH_STEPS, scan_steps)
        config.pretrain.folder = str(folder / "shared")
        return pretrain_encoder(config, phantoms, folder / run)

    patch, scan = pretrain("a", 0), pretrain("b", SCAN_STEPS)
    return SimpleNamespace(folder=folder, pretrain=pretrain, patch=patch, scan=scan)


@pytest.mark.system(haste=True)
def test_patch_stage_learns_and_returns_the_encoder(
    shared: SimpleNamespace, tiny: TumorChainConfig
) -> None:
    params, expected = shared.patch, abstract_params(tiny)
    parts = set(PRETRAINED) - {"organ_classifier/"}  # handed on by models with crops alone
    assert set(params) == {path for path in expected if path.startswith(tuple(parts))}
    assert all(params[path].shape == expected[path].shape for path in params)
    attention = {path for path in params if re.fullmatch(ATTENTION_OUT, path)}
    assert len(attention) == 2
    assert all(not params[path].any() for path in attention)
    losses = _losses(shared.folder / "shared" / "patch_stage")
    assert len(losses) == PATCH_STEPS
    assert np.mean(losses[-3:]) < 0.9 * losses[0]


@pytest.mark.system(haste=True)
def test_scan_stage_trains_attention(shared: SimpleNamespace) -> None:
    params = shared.scan
    assert all(params[path].any() for path in params if re.fullmatch(ATTENTION_OUT, path))
    losses = _losses(shared.folder / "shared" / "scan_stage")
    assert len(losses) == SCAN_STEPS
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


@pytest.mark.system(haste=True)
def test_pretraining_that_is_done_is_shared_by_runs(shared: SimpleNamespace) -> None:
    again = shared.pretrain("c", SCAN_STEPS)
    for path in again:
        np.testing.assert_array_equal(shared.scan[path], again[path])
    stages = [shared.folder / "shared" / name for name in ("patch_stage", "scan_stage")]
    assert [len(_losses(stage)) for stage in stages] == [PATCH_STEPS, SCAN_STEPS]
    assert not list(shared.folder.glob("[abc]/pretrain"))


def _losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_pretraining_without_lesions_is_refused(
    phantoms: Path, tiny: TumorChainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TrainingScans.__getitem__

    def without_lesions(scans: TrainingScans, index: int) -> ModelScan:
        scan = read(scans, index)
        return replace(scan, lesions=np.zeros_like(scan.lesions))

    monkeypatch.setattr(TrainingScans, "__getitem__", without_lesions)
    with pytest.raises(InputError, match="lesion maps: found no lesion in the ") as error:
        pretrain_encoder(_config(tiny, 2), phantoms, tmp_path)
    assert "--config.pretrain.patch_stage.steps=0" in str(error.value)
    assert "\n" not in str(error.value)


def test_stages_are_listed_with_their_steps(tiny: TumorChainConfig) -> None:
    assert stage_lines(_config(tiny, 3)) == ["pretraining, patch_stage: 3 steps"]
    assert len(stage_lines(_config(tiny, 3, 2))) == 2


def test_turn_makes_all_sixteen_views() -> None:
    patches = jnp.arange(4 * 8 * 8, dtype=jnp.uint8).reshape(1, 4, 8, 8)
    seen = np.asarray(turn(jax.random.key(0), jnp.repeat(patches, 200, axis=0)))
    plain = np.asarray(patches[0])
    mirrored = [plain[::z, ::y, ::x] for z in (1, -1) for y in (1, -1) for x in (1, -1)]
    views = {view.tobytes() for each in mirrored for view in (each, each.swapaxes(1, 2))}
    assert len(views) == 16
    assert {patch.tobytes() for patch in seen} == views


def test_noise_has_gain_offset_and_deviation_for_each_patch() -> None:
    plain = np.linspace(0, 255, 8**3).astype(np.uint8).reshape(8, 8, 8)
    seen = np.asarray(add_noise(jax.random.key(0), jnp.repeat(plain[None], 300, axis=0)))
    x = plain.ravel() / 255
    fits = [np.polyfit(x, patch.ravel(), 1) for patch in seen]
    gain, offset = np.transpose(fits)
    lines = np.outer(gain, x) + offset[:, None]
    noise = (seen.reshape(lines.shape) - lines).std(axis=1)
    for found, (low, high), slack in (
        (gain, GAIN, 0.03),
        (offset, OFFSET, 0.02),
        (noise, NOISE, 0.01),
    ):
        tenth = (high - low) / 10
        assert low - slack <= min(found) < low + tenth + slack
        assert high - tenth - slack < max(found) <= high + slack
