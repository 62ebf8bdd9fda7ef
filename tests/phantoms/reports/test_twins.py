"""Twins differ from a clean report in what their kind says."""

import pytest

from tumorchain_jax.phantoms.reports.injections import INJECTIONS
from tumorchain_jax.phantoms.reports.styles import STYLES
from tumorchain_jax.phantoms.reports.twins import KINDS, MEGABYTE, Twin, make_twins


def twins_of(style: str, kind: str) -> list[Twin]:
    return [twin for seed in range(4) for twin in make_twins(seed, STYLES[style], (kind,))]


@pytest.mark.parametrize("style", STYLES)
def test_twins_are_of_every_kind_and_ask_for_something(style):
    twins = make_twins(3, STYLES[style])
    assert [twin.kind for twin in twins] == [*KINDS]
    assert len(KINDS) == 16
    assert twins == make_twins(3, STYLES[style])
    for twin in twins:
        assert twin.text != twin.clean
        assert twin.vanish or twin.appear or twin.same or twin.flag or twin.sized or (
            twin.kind in ("empty section", "copied forward")
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["negated", "prior only", "hedged"])
def test_twin_exchanges_one_sentence(kind):
    for twin in twins_of("structured", kind):
        clean, text = (set(each.splitlines()) for each in (twin.clean, twin.text))
        assert len(clean - text) == len(text - clean) == 1
        assert {s.value for s in twin.vanish} == {"cyst"}


def test_injections_are_added_whole():
    for name in INJECTIONS:
        for twin in twins_of("dictated", f"injected {name}"):
            assert len(twin.text) > len(twin.clean)
            # Without the added lines the clean text is left.
            start = next(
                (at for at, (a, b) in enumerate(zip(twin.clean, twin.text, strict=False))
                 if a != b), len(twin.clean),
            )  # fmt: skip
            rest = twin.clean[start:]
            assert twin.text.endswith(rest) or twin.text.startswith(twin.clean)


def test_megabyte_and_two_patients_hold_the_clean_text():
    for twin in twins_of("telegraphic", "1 MB of text"):
        assert len(twin.text) > MEGABYTE
        assert twin.text.startswith(twin.clean)
    for twin in twins_of("telegraphic", "two patients"):
        assert twin.text.startswith(twin.clean)


def test_contradictions_name_another_side_or_organ():
    for twin in twins_of("structured", "wrong side"):
        assert "left kidney" in twin.text.split("mpression".upper())[-1].split("mpression")[-1]
        assert "right kidney" in twin.clean.split("IMPRESSION")[-1].split("mpression")[-1]
