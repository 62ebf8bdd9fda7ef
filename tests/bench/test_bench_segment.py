"""Both sides of the segmenter's benchmark do the same: at a tiny size they agree."""

from dataclasses import replace

import pytest

from tumorchain_jax.bench import transformers_models
from tumorchain_jax.bench.segment import NETWORK, bench_segment

TINY = replace(
    NETWORK,
    classes=3,
    features=(4, 8),
    strides=NETWORK.strides[:2],
    kernels=NETWORK.kernels[:2],
    encoder_blocks=(1, 1),
    decoder_convs=(1,),
)


@pytest.mark.system(haste=True)
@pytest.mark.usefixtures("one_process")
def test_both_segment_alike() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("nnunetv2")
    values = bench_segment(TINY, patch=16, spacing=16.0, repeats=1)
    assert values["logits apart, relative, at most"] < 1e-4, values
    # nnU-Net sums in float16, which decides near-ties, of which random weights leave many.
    assert values["same labels, share of voxels"] > 0.99, values
    for what in ("tile", "scan"):
        ratio = values[f"{what} by nnU-Net, s"] / values[f"{what}, s"]
        assert values[f"{what}, speedup"] == pytest.approx(ratio)
        assert values[f"{what}, peak GB"] == values[f"{what} by nnU-Net, peak GB"] == 1


def test_without_nnunet_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_models, "find_spec", lambda name: None)
    with pytest.raises(transformers_models.InputError, match="tumorchain-jax\\[parity\\]"):
        bench_segment()
