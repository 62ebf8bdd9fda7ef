"""`convert import -i hf:OWNER/NAME@REVISION`, from a local stand-in of the hub."""

import json
from pathlib import Path

import pytest
from file_server import served, use_hub

from tumorchain_jax.cli.main import main

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def test_import_from_the_hub_is_that_of_the_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    content = {path.name: path.read_bytes() for path in source.iterdir()}
    with served() as files:
        use_hub(monkeypatch, files.url, tmp_path / "hub")
        files.put_repository("someone/qwen", COMMIT, content, license="apache-2.0")
        words = ["-i", "hf:someone/qwen@main", "-o", str(tmp_path / "ours"), "--json"]
        assert main(["convert", "import", *words]) == 0
    assert json.loads(capsys.readouterr().out)["revision"] == COMMIT
    words = ["convert", "verify", "-i", str(source), "-o", str(tmp_path / "ours"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["same"]
