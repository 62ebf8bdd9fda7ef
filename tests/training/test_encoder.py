import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.data.pipeline import FEW_SHARE, CellSource, batches
from tumorchain_jax.models.tumorchain import TumorChainConfig, abstract_params
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.organs import DIGESTIVE
from tumorchain_jax.training.encoder import ATTENTION_OUT, pretrain_encoder

ENCODER = ViT3DConfig((8, 16, 16), (4, 8, 8))


def _config(model: TumorChainConfig, steps: int) -> ConfigDict:
    return ConfigDict(
        {
            "model": model,
            "seed": 0,
            "encoder": {"steps": steps, "batch_size": 2, "cells": 8, "learning_rate": 3e-2},
            "optimizer": "muon",
            "warmup_ratio": 0.1,
            "weight_decay": 0.0,
            "clip_norm": 1.0,
            "log_every": 1,
            "checkpoint": {"every": 2, "keep": 1},
        }
    )


def test_cells_and_tags_follow_the_maps(phantoms: Path) -> None:
    source = CellSource(phantoms, ENCODER, count=12)
    assert len(source) == 6
    drawn = 0
    for index in range(len(source)):
        scan = source[index]
        example = source.draw(scan, Middle(np.random.PCG64(0)))
        digestive: list[int] = []
        for cell in range(8):
            d, h, w = np.unravel_index(cell, (2, 2, 2))
            box = np.s_[4 * d : 4 * d + 4, 8 * h : 8 * h + 8, 8 * w : 8 * w + 8]
            filled = np.bincount(scan.labels[box].ravel(), minlength=57)
            ill = np.bincount(scan.lesions[box].ravel(), minlength=57)
            few = FEW_SHARE * 256
            if max(filled[list(DIGESTIVE)]) > few:
                digestive.append(cell)
            for k in np.flatnonzero(example["numbers"] == cell):
                drawn += 1
                np.testing.assert_array_equal(example["cells"][k], scan.image[box])
                assert filled[example["organ"][k]] == filled.max()
                for site, label in enumerate(DIGESTIVE):
                    assert example["present"][k, site] == (filled[label] > few)
                    assert example["lesion"][k, site] == (ill[label] > few)
                    assert example["unsure"][k, site] == (0 < ill[label] <= few)
        others = [cell for cell in range(8) if cell not in digestive]
        expected = np.resize([*others[:2], *digestive, *others], 12)
        np.testing.assert_array_equal(example["numbers"], expected)
    assert drawn == 6 * 12


class Middle(np.random.Generator):
    """Shifts nothing and keeps the order."""

    def integers(self, *high: Any, **_: Any) -> Any:
        return high[0] // 2

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return x


def test_cells_are_drawn_anew_and_the_same_again(phantoms: Path) -> None:
    source = CellSource(phantoms, ENCODER, count=3)
    whole = list(islice(batches(source, 2, 0, 0), 9))
    for left, right in zip(whole[5:], islice(batches(source, 2, 0, 5), 4), strict=True):
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    assert not np.array_equal(whole[0]["cells"], whole[3]["cells"])  # the second epoch


def test_it_learns_and_hands_over_the_encoder(
    phantoms: Path, tiny: TumorChainConfig, tmp_path: Path
) -> None:
    params = pretrain_encoder(_config(tiny, 12), phantoms, tmp_path)
    before = abstract_params(tiny)
    assert set(params) == {path for path in before if path.startswith("encoder/")}
    assert all(params[path].shape == before[path].shape for path in params)
    attention = {path for path in params if re.fullmatch(ATTENTION_OUT, path)}
    assert len(attention) == 2
    assert all(not params[path].any() for path in attention)
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
