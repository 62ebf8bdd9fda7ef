"""A checkpoint of 300 MB goes in and out in a small part of the memory that it fills."""

from dataclasses import replace
from pathlib import Path

import pytest

from tumorchain_jax.bench.convert import bench_convert
from tumorchain_jax.models.language.qwen2.model import QWEN2_5_3B


@pytest.mark.system
def test_memory_stays_below_the_checkpoint_s_size(tmp_path: Path) -> None:
    config = replace(QWEN2_5_3B, num_hidden_layers=1, vocab_size=20_000)
    values = bench_convert(config, tower_blocks=2, folder=tmp_path)
    assert 0.29 < values["checkpoint, GB"] < 0.32
    for word in ("import", "export", "verify"):
        # Python with JAX takes some 0.35 GB before it reads anything.
        assert values[f"{word}, peak GB"] < 0.8, values
        assert values[f"{word}, s"] > 0
    assert not [*tmp_path.iterdir()]
