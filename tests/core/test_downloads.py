"""Optional dependencies are asked for before anything is downloaded."""

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.core import downloads


def test_chat_names_its_missing_extra_before_a_download(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(downloads, "find_spec", lambda name: None)
    monkeypatch.setattr(downloads.subprocess, "run", lambda *_, **__: pytest.fail("downloaded"))
    assert main(["chat", "-p", "hello"]) == 2
    assert "pip install 'tumorchain-jax[chat]'" in capsys.readouterr().err
