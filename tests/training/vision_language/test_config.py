"""Shipped vision-language configurations adapt the layers that PEFT and ms-swift adapt."""

from math import prod
from pathlib import Path

import pytest

from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.path_rules import first_match
from tumorchain_jax.models.qwen_vl.model import abstract_params, part_of

# Counted of PEFT's adapters on the released sizes, for each unit of rank.
RANK_1 = {"text": 1_870_848, "tower": 696_960, "merger": 17_408, "patch embedding": 2456}


@pytest.mark.parametrize(("name", "rank"), [("3b_chain", 64), ("3b_released", 16)])
def test_adapters_of_each_part_have_as_many_parameters_as_those_of_peft(
    name: str, rank: int
) -> None:
    config = read_config(Path(f"bus_cot_qwen2_5_vl_{name}"), [])
    counts = dict.fromkeys(RANK_1, 0)
    total = 0
    for path, leaf in abstract_params(config.model).items():
        is_adapter = path.endswith(("/lora_a", "/lora_b"))
        assert first_match(config.trainable, path) is is_adapter
        counts[part_of(path)] += is_adapter * prod(leaf.shape)
        total += (not is_adapter) * prod(leaf.shape)
    assert counts == {part: rank * count for part, count in RANK_1.items()}
    assert total == 3_754_622_976


def test_direct_and_chain_differ_in_their_rows_alone() -> None:
    direct, chain = (
        read_config(Path(f"bus_cot_qwen2_5_vl_3b_{name}"), []) for name in ("direct", "chain")
    )
    assert {name for name in direct if direct[name] != chain[name]} == {"data"}
    differing = {name for name in direct.data if direct.data[name] != chain.data[name]}
    assert differing == {"rows", "length"}
