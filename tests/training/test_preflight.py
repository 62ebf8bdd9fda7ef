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
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.training import preflight as module
from tumorchain_jax.training.preflight import preflight, text

CONFIGS = Path(__file__).parents[2] / "configs"
NANO, SEGMENTER = CONFIGS / "nano.py", CONFIGS / "nano_segmenter.py"
LENS = CONFIGS / "nano_lens.py"  # of the shipped model
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


def look(workdir: Path, *overrides: str, config: Path = NANO) -> dict[str, Any]:
    """Each check by its name."""
    found = preflight(read_config(config, overrides), workdir, SINGLE_PROCESS)
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
    assert message in checks[name].found


@pytest.mark.system(haste=True)
def test_init_of_another_model_is_refused_as_by_training(tmp_path: Path) -> None:
    wide = ["--config.model.decoder.intermediate_size=48", f"--config.init={NANO_CHECKPOINT}"]
    checks = look(tmp_path, *wide, config=LENS)
    assert [check.name for check in checks.values() if not check.ok] == ["init"]
    assert "mlp/down_proj/kernel: found" in checks["init"].found
    assert look(tmp_path, wide[1], config=LENS)["init"].ok


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("settings", "--config.segmenter.patch_size=(55,40,56)", "multiples of (8, 8, 8)"),
        ("dataset", "--config.segmenter.spacing=(0.0,7.0,7.0)", "3 positive numbers"),
        ("settings", "--config.learning_rate=-1.0", "learning_rate: found -1.0"),
        ("settings", "--config.augmentation.turn=-1.0", "augmentation.turn: found -1.0"),
    ],
)
def test_segmenter_settings_that_training_refuses(
    tmp_path: Path, name: str, override: str, message: str
) -> None:
    checks = look(tmp_path, override, config=SEGMENTER)
    assert name in [check.name for check in checks.values() if not check.ok]
    assert message in checks[name].found


def test_segmenter_data_of_another_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    values = {"mean": 0.0, "std": 1.0, "percentile_00_5": -1.0, "percentile_99_5": 1.0}
    (tmp_path / "data" / "intensity.json").write_text(json.dumps(values))
    (tmp_path / "data" / "phantoms.json").write_text('{"count": 1}')
    checks = look(tmp_path, config=SEGMENTER)
    assert [check.name for check in checks.values() if not check.ok] == ["dataset"]
    assert list(checks) == NAMES
    assert "phantoms: found {'count': 1}" in checks["dataset"].found


def test_a_workdir_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checks = look(tmp_path / "file")
    assert not checks["workdir"].ok
    assert "File exists" in checks["workdir"].found


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    checks = look(tmp_path)
    assert not checks["disk"].ok
    assert "found 0.0 GiB free" in checks["disk"].found


def test_a_plugin_that_finds_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_plugins", lambda: {"jax-cuda13-plugin": "0.10.2"})
    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", None)
    try:
        checks = look(tmp_path)
    finally:
        jax.config.update("jax_platforms", before)
    assert not checks["devices"].ok
    assert "expected those of jax-cuda13-plugin" in checks["devices"].found
    assert "mesh" not in checks


def test_hosts_that_differ_are_named() -> None:
    def host(process: int, found: str, problem: str = "") -> dict[str, Any]:
        seen = {"found": found, "problem": problem}
        return {"process": process, "host": f"node{process}", "free_gib": 1.0, "versions": seen}

    agreed = module._agree("versions", [host(0, "jax 1"), host(1, "jax 2"), host(2, "jax 1")])
    assert not agreed.ok
    assert "jax 1 (process 0 on node0 and 1 more); jax 2 (process 1 on node1)" in agreed.found
    assert "launch/constraints.txt" in agreed.found
    agreed = module._agree("versions", [host(0, "jax 1"), host(1, "", "gone")])
    assert (agreed.ok, agreed.found) == (False, "gone (process 1 on node1)")
    table = text(module.Preflight([agreed], [host(0, "jax 1"), host(1, "", "gone")])).splitlines()
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


@pytest.mark.system(haste=True)
def test_two_processes_that_are_ready(tmp_path: Path) -> None:
    (code, output), (other_code, other_output) = two(tmp_path, *[["--workdir", str(tmp_path)]] * 2)
    assert (code, other_code) == (0, 0)
    found = found_by_first(output)
    assert [check["name"] for check in found["checks"]] == NAMES
    assert found["ok"]
    assert [host["process"] for host in found["hosts"]] == [0, 1]
    assert "checks" not in other_output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system(haste=True)
def test_two_processes_that_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    words = [["--workdir", str(tmp_path / "a")], ["--workdir", str(tmp_path / "b")]]
    words[1].append("--config.batch_size=3")  # which fits no two devices
    (code, output), (other_code, _) = two(tmp_path, *words)
    assert (code, other_code) == (2, 2)
    wrong = {c["name"]: c["found"] for c in found_by_first(output)["checks"] if not c["ok"]}
    assert list(wrong) == ["configuration", "workdir", "dataset"]
    assert "no file of the first process" in wrong["workdir"]
    assert "process 1" in wrong["workdir"]
