"""The same six steps on one device and on eight, however they are cut: the same losses."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.program, pytest.mark.system]
SCRIPT = Path(__file__).with_name("steps_on_mesh.py")
ONE: dict[str, Any] = {"mesh": {}}
RUNS: dict[str, dict[str, Any]] = {
    "8 fsdp": {"mesh": {"fsdp": 8}},
    "2 data x 4 sequence": {"mesh": {"data": 2, "sequence": 4}},
    "2 fsdp x 2 tensor x 2 sequence": {"mesh": {"fsdp": 2, "tensor": 2, "sequence": 2}},
    "2 fsdp x 4 tensor, accumulated": {"mesh": {"fsdp": 2, "tensor": 4}, "micro_batch_size": 2},
    "all of it": {"mesh": {"fsdp": 2, "sequence": 2}, "micro_batch_size": 2, "remat": "dots"}
    | {"logits_chunks": 3},
}
RELATIVE = 1e-5
STEPS = 6
TIMEOUT_S = 600
HASTE = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@contextmanager
def killed_at_the_end(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the block: a child of a failed test would fail the next."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    lora = {"lora": True}
    few, crops = {"key_value_heads": 1}, {"crops": True}
    runs = {"one": ONE, **RUNS, "one, LoRA": ONE | lora, "LoRA": RUNS["8 fsdp"] | lora}
    runs |= {"one, one head": ONE | few, "one head": {"mesh": {"tensor": 2, "fsdp": 2}} | few}
    cut = {"mesh": {"fsdp": 4, "tensor": 2}, "remat": "full"}
    runs |= {"one, crops": ONE | crops, "crops, computed again": cut | crops}
    command = [sys.executable, str(SCRIPT), *map(json.dumps, runs.values())]
    done = subprocess.run(
        command,
        env={**os.environ, **HASTE},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    # XLA says so where it finds no better way than to gather all of an array everywhere.
    assert "Involuntary full rematerialization" not in done.stderr
    return dict(zip(runs, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_those_of_one_device(name: str, reports: dict[str, Any]) -> None:
    expected = reports["one"]["losses"]
    assert len(set(expected)) == STEPS
    assert reports[name]["losses"] == pytest.approx(expected, rel=RELATIVE)


def test_losses_of_adapters_are_those_of_one_device(reports: dict[str, Any]) -> None:
    expected = reports["one, LoRA"]["losses"]
    assert expected != reports["one"]["losses"]
    assert reports["LoRA"]["losses"] == pytest.approx(expected, rel=RELATIVE)


def test_losses_with_crops_are_those_of_one_device(reports: dict[str, Any]) -> None:
    expected = reports["one, crops"]["losses"]
    assert expected != reports["one"]["losses"]
    assert reports["crops, computed again"]["losses"] == pytest.approx(expected, rel=RELATIVE)


def test_losses_with_fewer_key_value_heads_than_devices_are_those_of_one_device(
    reports: dict[str, Any],
) -> None:
    expected = reports["one, one head"]["losses"]
    assert expected != reports["one"]["losses"]
    assert reports["one head"]["losses"] == pytest.approx(expected, rel=RELATIVE)


def test_losses_of_several_processes_are_those_of_one(reports: dict[str, Any]) -> None:
    """Two axes of the mesh lie across the four processes."""
    count, run = 4, RUNS["2 fsdp x 4 tensor, accumulated"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                killed_at_the_end(
                    [sys.executable, str(SCRIPT), json.dumps(run)],
                    env={**os.environ, **HASTE, "PROCESS": f"{address},{count},{index}"},
                )
            )
            for index in range(count)
        ]
        ended = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        for process, (_, errors) in zip(processes, ended, strict=True):
            assert process.returncode == 0, errors
    for output, _ in ended:
        for found in json.loads(output.splitlines()[-1]):
            assert found["losses"] == pytest.approx(reports["one"]["losses"], rel=RELATIVE)


def test_activations_are_constrained(reports: dict[str, Any]) -> None:
    """Under `with mesh:` Flax drops every constraint without a word."""
    for name in RUNS:
        assert reports[name]["constraints"] >= 40, name


def test_parameters_are_cut(reports: dict[str, Any]) -> None:
    kernel = "decoder/layers/mlp/gate_proj/kernel"
    for name in RUNS:
        assert "'fsdp', 'tensor'" in reports[name]["shardings"][kernel], name
