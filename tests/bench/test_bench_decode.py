"""The decoder benchmarks compare the same work: at a tiny size both write the same text."""

import pytest

from tumorchain_jax.bench.decode import bench_decode
from tumorchain_jax.bench.loop import bench_loop
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

pytest.importorskip("torch")

TINY = Qwen2Config(
    vocab_size=400,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    tie_word_embeddings=True,
)


@pytest.mark.system(haste=True)
def test_both_decoders_write_the_same() -> None:
    values = bench_decode(TINY, prompt=12, new=9, batches=(1, 2), repeats=1)
    assert [values[f"batch {n}: same text, share"] for n in (1, 2)] == [1.0, 1.0]
    assert len(values) == 14
    assert values["batch 1: prefill, speedup"] > 0


@pytest.mark.system(haste=True)
def test_both_loops_write_the_same() -> None:
    encoder = ViT3DConfig((8, 16, 16), (2, 4, 4), 8, 8, 1, 1)
    values = bench_loop(TINY, encoder, rounds=3, tokens=6, roi_slots=5, repeats=1)
    assert values["same text, share"] == 1.0
    assert values["loop, s"] > 0
