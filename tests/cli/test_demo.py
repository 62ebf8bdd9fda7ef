"""What the demo asks before it replaces files, and its lines about phases."""

import io
import sys
from pathlib import Path

import pytest

from tumorchain_jax.cli.demo import _may_replace
from tumorchain_jax.cli.printing import phase


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "allowed"), [("y\n", True), ("n\n", False), ("", False)])
def test_demo_asks_before_it_replaces_an_earlier_one(
    typed: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", shown)
    assert not _may_replace(tmp_path)
    assert shown.getvalue() == "", "nothing to replace"
    (tmp_path / "phantom").mkdir()
    assert _may_replace(tmp_path) is allowed
    assert "Replace the earlier demo" in shown.getvalue()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert not _may_replace(tmp_path), "nobody to ask"


def test_phase_is_one_line_at_a_terminal_and_two_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(stream: io.StringIO) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        with phase("reading"):
            pass
        with pytest.raises(ZeroDivisionError), phase("dividing"):
            _ = 1 / 0
        return stream.getvalue()

    assert shown(Terminal()) == "reading ... 0.0 s\ndividing ... stopped\n"
    assert shown(io.StringIO()) == "reading ...\nreading: 0.0 s\ndividing ...\ndividing: stopped\n"
