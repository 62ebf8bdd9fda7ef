"""The checks before a training, on one process and on two real ones."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.parallel.rendezvous import SINGLE_PROCESS
from tumorchain_jax.training import preflight as module
from tumorchain_jax.training.preflight import preflight, text

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
# As on the command line, but soon sure that a folder is not shared.
HASTY = """
import sys
from tumorchain_jax.cli.main import main
from tumorchain_jax.training import preflight
preflight.SHARED_WITHIN = 1
sys.exit(main(sys.argv[1:]))
"""
OF_HOSTS = ["processes", "versions", "configuration", "workdir", "dataset", "init", "devices"]
NAMES = [*OF_HOSTS, "settings", "mesh", "batch", "weights", "memory", "disk", "collective"]


def look(workdir: Path, *overrides: str) -> dict[str, Any]:
    """Each check by its name."""
    found = preflight(read_config(NANO, overrides), workdir, SINGLE_PROCESS)
    return {check.name: check for check in found.checks}


def test_a_machine_that_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workdir = tmp_path / "new" / "run"
    assert main(["preflight", "--config", str(NANO), "--workdir", str(workdir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-2]] == [["ok", name] for name in NAMES]
    assert lines[-2].split() == ["process", "host", "devices", "free_gib"]
    assert lines[-1].split()[:2] == ["0", socket.gethostname()]
    assert list(workdir.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("mesh", ["--config.mesh.tensor=3"], "data 1, fsdp -1, tensor 3"),
        ("batch", ["--config.micro_batch_size=3"], "found 3, expected a divisor of 8"),
        ("weights", ['--config.trainable=(("encoder/.*",True),)'], "found none for decoder/"),
        ("dataset", ["--config.data.phantoms=0"], "dataset.json: found none"),
        ("init", ["--config.init=/no,/neither"], "/no: config.init: found no such folder"),
    ],
)
def test_a_configuration_that_does_not_fit(
    tmp_path: Path, name: str, overrides: list[str], message: str
) -> None:
    checks = look(tmp_path, *overrides)
    assert [check.name for check in checks.values() if not check.ok] == [name]
    assert message in checks[name].told


def test_a_workdir_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checks = look(tmp_path / "file")
    assert not checks["workdir"].ok
    assert "File exists" in checks["workdir"].told


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    checks = look(tmp_path)
    assert not checks["disk"].ok
    assert "found 0.0 GiB free" in checks["disk"].told


def test_a_plugin_that_finds_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_plugins", lambda: {"jax-cuda13-plugin": "0.10.2"})
    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", None)
    try:
        checks = look(tmp_path)
    finally:
        jax.config.update("jax_platforms", before)
    assert not checks["devices"].ok
    assert "expected those of jax-cuda13-plugin" in checks["devices"].told
    assert "mesh" not in checks


def test_hosts_that_differ_are_named() -> None:
    def host(process: int, found: str, problem: str = "") -> dict[str, Any]:
        seen = {"found": found, "problem": problem}
        return {"process": process, "host": f"node{process}", "free_gib": 1.0, "versions": seen}

    told = module._agree("versions", [host(0, "jax 1"), host(1, "jax 2"), host(2, "jax 1")])
    assert not told.ok
    assert "jax 1 (process 0 on node0 and 1 more); jax 2 (process 1 on node1)" in told.told
    assert "launch/constraints.txt" in told.told
    told = module._agree("versions", [host(0, "jax 1"), host(1, "", "gone")])
    assert (told.ok, told.told) == (False, "gone (process 1 on node1)")
    table = text(module.Preflight([told], [host(0, "jax 1"), host(1, "", "gone")])).splitlines()
    assert table[1].split() == ["process", "host", "devices", "free_gib"]
    assert table[2].split() == ["0", "node0", "not", "asked", "1.0"]


def two(tmp_path: Path, *own: list[str]) -> list[tuple[int, str]]:
    """Exit code and output of two processes, each with words of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-c", HASTY, "preflight", "--json"]
    command += ["--config", str(NANO), "--coordinator", address, "--processes", "2"]
    processes = [
        subprocess.Popen(
            [*command, "--process", str(index), *words],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, words in enumerate(own)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    return [(p.returncode, output) for p, output in zip(processes, outputs, strict=True)]


def found_by_first(output: str) -> dict[str, Any]:
    return json.loads(output.splitlines()[-1])  # after what XLA says of its network


def test_two_processes_that_are_ready(tmp_path: Path) -> None:
    (code, output), (other_code, other_output) = two(tmp_path, *[["--workdir", str(tmp_path)]] * 2)
    assert (code, other_code) == (0, 0)
    found = found_by_first(output)
    assert [check["name"] for check in found["checks"]] == NAMES
    assert found["ok"]
    assert [host["process"] for host in found["hosts"]] == [0, 1]
    assert "checks" not in other_output
    assert list(tmp_path.iterdir()) == []


def test_two_processes_that_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    words = [["--workdir", str(tmp_path / "a")], ["--workdir", str(tmp_path / "b")]]
    words[1].append("--config.batch_size=3")  # which fits no two devices
    (code, output), (other_code, _) = two(tmp_path, *words)
    assert (code, other_code) == (2, 2)
    wrong = {c["name"]: c["told"] for c in found_by_first(output)["checks"] if not c["ok"]}
    assert list(wrong) == ["configuration", "workdir", "dataset"]
    assert "no file of the first process" in wrong["workdir"]
    assert "process 1" in wrong["workdir"]
