from collections.abc import Iterator

import pytest

from tumorchain_jax.core import progress as module
from tumorchain_jax.core.progress import SECONDS, progress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def slow(clock: Clock, items: int, seconds: float) -> Iterator[int]:
    """Items that take so long each."""
    for item in range(items):
        clock.now += seconds
        yield item


def test_without_a_terminal_long_work_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    items = slow(clock, 5, 0.6 * SECONDS)
    assert list(progress(items, 5, "patches", "scans")) == [0, 1, 2, 3, 4]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "patches: 0 of 5 scans",
        "patches: 2 of 5 scans",
        "patches: 4 of 5 scans",
        "patches: 5 of 5 scans",
    ]


def test_line_comes_before_the_first_item(capsys: pytest.CaptureFixture[str]) -> None:
    next(progress(iter("ab"), 2, "patches", "scans"))
    assert capsys.readouterr().err == "patches: 0 of 2 scans\n"


def test_short_work_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress("abc", 3, "patches", "scans")) == ["a", "b", "c"]
    assert capsys.readouterr().err == "patches: 0 of 3 scans\n"
