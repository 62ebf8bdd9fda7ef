"""The benchmark of classifiers: both sides do the same work."""

import pytest

from tumorchain_jax.bench.classify import bench_classify


@pytest.mark.usefixtures("one_process")
@pytest.mark.system(haste=True)
def test_losses_are_timms_over_all_steps() -> None:
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 2}
    values = bench_classify(("vit_base_patch16_224",), sizes, side=32, rows=2, repeats=1)
    name = "vit_base_patch16_224"
    assert values[f"{name}, first losses apart, relative"] < 1e-5
    assert values[f"{name}, losses apart, relative, at most"] < 1e-4
    assert values[f"{name}, speedup"] > 0
