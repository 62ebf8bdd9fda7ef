import json
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.data.pipeline import LESION_SHARE, CellSource
from tumorchain_jax.models.tumorchain import TumorChainConfig, abstract_params
from tumorchain_jax.training.encoder import pretrain_encoder


def _config(model: TumorChainConfig, steps: int) -> ConfigDict:
    return ConfigDict(
        {
            "model": model,
            "seed": 0,
            "encoder": {"steps": steps, "batch_size": 2, "learning_rate": 3e-3},
            "warmup_ratio": 0.1,
            "weight_decay": 0.0,
            "clip_norm": 1.0,
            "log_every": 1,
            "checkpoint": {"every": 2, "keep": 1},
        }
    )


def test_cell_tags_follow_the_maps(phantoms: Path) -> None:
    source = CellSource(phantoms, (2, 2, 2))
    assert len(source) == 6
    for index in range(len(source)):
        scan, example = ModelScan.from_bytes(source.scans[index]), source[index]
        for cell in range(8):
            d, h, w = np.unravel_index(cell, (2, 2, 2))
            box = np.s_[4 * d : 4 * d + 4, 8 * h : 8 * h + 8, 8 * w : 8 * w + 8]
            filled = np.bincount(scan.labels[box].ravel(), minlength=57)
            assert filled[example["organ"][cell]] == filled.max()
            ill = scan.lesions[box]
            assert example["lesion"][cell] == ((ill > 0).sum() > LESION_SHARE * ill.size)


def test_it_learns_and_hands_over_the_encoder(
    phantoms: Path, tiny: TumorChainConfig, tmp_path: Path
) -> None:
    params = pretrain_encoder(_config(tiny, 12), phantoms, tmp_path)
    before = abstract_params(tiny)
    assert set(params) == {path for path in before if path.startswith("encoder/")}
    assert all(params[path].shape == before[path].shape for path in params)
    lines = (tmp_path / "encoder" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == 12
    assert np.mean(losses[-3:]) < 0.9 * losses[0]


def test_done_pretraining_is_taken_from_its_checkpoint(
    phantoms: Path, tiny: TumorChainConfig, tmp_path: Path
) -> None:
    first = jax.device_get(pretrain_encoder(_config(tiny, 3), phantoms, tmp_path))
    again = jax.device_get(pretrain_encoder(_config(tiny, 3), phantoms, tmp_path))
    for path in first:
        np.testing.assert_array_equal(first[path], again[path])
    lines = (tmp_path / "encoder" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3
