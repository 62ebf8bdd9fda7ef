"""The paper's tables recomputed: what adds up, and what does not."""

from statistics import fmean

import pytest

from tumorchain_jax.evaluation.paper import (
    GROUPS,
    TABLE_1,
    TABLE_1_AVERAGES,
    TABLE_2,
    TABLE_6,
    TABLE_8,
    TABLE_9,
    cot_e,
    group_means,
)


@pytest.mark.parametrize("model", TABLE_2)
def test_cot_e_is_the_weighted_sum_with_the_swap_undone(model: str) -> None:
    *levels, printed = TABLE_2[model]
    assert cot_e(*levels) == pytest.approx(printed, abs=0.006 + 1e-9)


def test_two_rows_do_not_add_up_as_printed() -> None:
    assert len(TABLE_2) == 11
    three, seven = TABLE_2["TumorChain-3B"], TABLE_2["TumorChain-7B"]
    assert (three[0], seven[0]) == (62.37, 61.75)
    for row, other in ((three, seven), (seven, three)):
        assert abs(cot_e(other[0], row[1], row[2]) - row[3]) > 0.15


def test_averages_of_table_1_but_two() -> None:
    off = {
        name for name, row in TABLE_1.items() if abs(fmean(row) - TABLE_1_AVERAGES[name]) > 0.005
    }
    assert len(TABLE_1) == 17
    assert off == {"RadFM", "M3D-Phi-3-4B"}
    assert fmean(TABLE_1["RadFM"]) == pytest.approx(27.18, abs=0.005)
    assert fmean(TABLE_1["M3D-Phi-3-4B"]) == pytest.approx(33.86, abs=0.005)


def test_table_9_groups_segment_localisation_with_the_attributes() -> None:
    assert GROUPS == (2, 6, 3, 1)
    for model, (before, _) in TABLE_9.items():
        own, other = (group_means(TABLE_1[model], groups) for groups in (GROUPS, (3, 5, 3, 1)))
        assert own == pytest.approx(before[:4], abs=0.031), model
        assert max(abs(a - b) for a, b in zip(other, before, strict=False)) > 0.5


def test_averages_of_table_9_are_of_two_kinds() -> None:
    for model in ("Lingshu-7B", "Qwen2.5-VL-7B"):
        before, after = TABLE_9[model]
        assert after is not None
        assert before[4] == pytest.approx(fmean(TABLE_1[model]), abs=0.005)
        assert after[4] == pytest.approx(fmean(after[:4]), abs=0.006)
        assert abs(after[4] - sum(m * g for m, g in zip(after, GROUPS, strict=False)) / 12) > 0.5


def test_table_6_is_a_plain_mean_and_table_8_has_the_average() -> None:
    for row in TABLE_6.values():
        assert fmean(row[:5]) == pytest.approx(row[5], abs=0.006)
    assert TABLE_8[1.0] == TABLE_1_AVERAGES["TumorChain-7B"]
