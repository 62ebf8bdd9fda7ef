"""The vision-language benchmark compares the same work: a tiny model has the same numbers."""

from dataclasses import replace

import pytest

from tumorchain_jax.bench.vision_language import Case, bench_vision_language
from tumorchain_jax.models.qwen_vl.model import BUS_NANO_VLM, QwenVLConfig

pytest.importorskip("torch")

TINY = QwenVLConfig(
    replace(BUS_NANO_VLM.tower, depth=2, hidden_size=32, fullatt_block_indexes=(1,)),
    replace(BUS_NANO_VLM.decoder, num_hidden_layers=1),
)


@pytest.mark.system(haste=True)
def test_both_towers_and_trainings_have_the_same_numbers() -> None:
    cases = {
        "tower": Case(TINY, (6, 10), 1, 48, False),
        "step": Case(TINY, (4, 4), 2, 48, True),
    }
    values = bench_vision_language(cases, repeats=1)
    assert values["tower, apart"] <= 1e-5
    assert values["step, apart"] <= 1e-4
    assert values["tower, speedup"] > 0 < values["step, speedup"]
    assert len(values) == 8
