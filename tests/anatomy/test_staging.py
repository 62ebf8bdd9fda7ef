"""Every row of the tables, written out again by hand."""

import pytest

from tumorchain_jax.anatomy.staging import (
    COLORECTUM,
    ESOPHAGUS,
    LIVER,
    PANCREAS,
    STOMACH,
    Extent,
    m_category,
    n_category,
    t_category,
)


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (Extent(PANCREAS, (5.0,)), "T1a"),
        (Extent(PANCREAS, (5.1,)), "T1b"),
        (Extent(PANCREAS, (9.9,)), "T1b"),
        (Extent(PANCREAS, (10.0,)), "T1c"),
        (Extent(PANCREAS, (20.0, 3.0)), "T1c"),
        (Extent(PANCREAS, (20.1,)), "T2"),
        (Extent(PANCREAS, (40.0,)), "T2"),
        (Extent(PANCREAS, (3.0, 40.1)), "T3"),
        (Extent(PANCREAS, (3.0,), large_vessel=True), "T4"),
        (Extent(LIVER, (20.0,), small_vessel=True), "T1a"),
        (Extent(LIVER, (20.1,)), "T1b"),
        (Extent(LIVER, (20.1,), small_vessel=True), "T2"),
        (Extent(LIVER, (50.0, 3.0)), "T2"),
        (Extent(LIVER, (3.0, 50.1)), "T3"),
        (Extent(LIVER, (3.0,), large_vessel=True), "T4"),
        (Extent(LIVER, (3.0,), depth="neighbour"), "T4"),
        (Extent(STOMACH, (9.0,), depth="inner wall"), "T1b"),
        (Extent(STOMACH, (9.0,), depth="wall"), "T2"),
        (Extent(ESOPHAGUS, (9.0,), depth="fat"), "T3"),
        (Extent(ESOPHAGUS, (9.0,), depth="neighbour"), "T4b"),
        (Extent(COLORECTUM, (9.0,), depth="inner wall"), "T1"),
        (Extent(COLORECTUM, (9.0,), depth="surface"), "T4a"),
    ],
)
def test_t(extent: Extent, expected: str) -> None:
    assert t_category(extent) == expected


@pytest.mark.parametrize(
    ("organ", "expected"),
    [
        (LIVER, "N0 N1 N1 N1 N1 N1 N1 N1"),
        (PANCREAS, "N0 N1 N1 N1 N2 N2 N2 N2"),
        (STOMACH, "N0 N1 N1 N2 N2 N2 N2 N3a"),
        (ESOPHAGUS, "N0 N1 N1 N2 N2 N2 N2 N3"),
        (COLORECTUM, "N0 N1a N1b N1b N2a N2a N2a N2b"),
    ],
)
def test_n_from_none_to_seven_nodes(organ: int, expected: str) -> None:
    found = [n_category(Extent(organ, (9.0,), nodes=count)) for count in range(8)]
    assert found == expected.split()
    if organ == STOMACH:
        assert [n_category(Extent(organ, (9.0,), nodes=n)) for n in (15, 16)] == ["N3a", "N3b"]


def test_m() -> None:
    for organ in (LIVER, PANCREAS, STOMACH, ESOPHAGUS):
        assert m_category(Extent(organ, (9.0,))) == "M0"
        assert m_category(Extent(organ, (9.0,), metastases=frozenset({1, 2}))) == "M1"
        assert m_category(Extent(organ, (9.0,), peritoneum=True)) == "M1"
    sites = (frozenset(), frozenset({5}), frozenset({5, 14}))
    found = [m_category(Extent(COLORECTUM, (9.0,), metastases=s)) for s in sites]
    assert found == ["M0", "M1a", "M1b"]
    both = Extent(COLORECTUM, (9.0,), metastases=frozenset({5}), peritoneum=True)
    assert m_category(both) == "M1c"


def test_organ_without_a_table_is_refused() -> None:
    with pytest.raises(KeyError):
        t_category(Extent(1, (9.0,)))
