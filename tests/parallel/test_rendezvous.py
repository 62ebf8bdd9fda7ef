import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.parallel.rendezvous import AllGather, ProcessInfo, connect, resolve_process

Script = Callable[[AllGather, int], Any]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def act(port: int, count: int, script: Script, here: list[int], timeout: int = 20) -> list[Any]:
    """What `script` gives in each process that is here, or what stopped it."""

    def one(index: int) -> Any:
        with connect(ProcessInfo(f"localhost:{port}", count, index), timeout) as all_gather_object:
            return script(all_gather_object, index)

    def ended(work: Future) -> Any:
        return work.exception() or work.result()

    with ThreadPoolExecutor(count) as threads:
        return [ended(work) for work in [threads.submit(one, index) for index in here]]


def test_all_know_what_each_tells(port: int) -> None:
    def script(all_gather_object: AllGather, index: int) -> Any:
        return all_gather_object("a", index * 10), all_gather_object("b", {"text": f"ü{index}"})

    texts = [{"text": f"ü{index}"} for index in range(3)]
    assert act(port, 3, script, [2, 0, 1]) == [([0, 10, 20], texts)] * 3


def test_port_is_free_again_after_the_connection(port: int) -> None:
    """JAX's coordinator listens there next."""

    def script(all_gather_object: AllGather, index: int) -> Any:
        if index == 0:
            with socket.create_server(("", port)):
                return all_gather_object("a", index)
        return all_gather_object("a", index)

    assert act(port, 2, script, [0, 1]) == [[0, 1], [0, 1]]


def test_missing_process_is_named_to_all(port: int) -> None:
    found = act(port, 4, lambda all_gather_object, index: None, [0, 2], timeout=1)
    for error in found:
        assert isinstance(error, InputError)
        assert error.found == "nothing of process 1, 3 about being here"


def test_process_that_leaves_is_named_to_all(port: int) -> None:
    def script(all_gather_object: AllGather, index: int) -> Any:
        return None if index == 1 else all_gather_object("its disk", index)

    first, left, other = act(port, 3, script, [0, 1, 2])
    assert left is None
    assert first.found == other.found == "nothing of process 1 about its disk"


def test_primary_process_that_leaves_is_noticed(port: int) -> None:
    def script(all_gather_object: AllGather, index: int) -> Any:
        return None if index == 0 else all_gather_object("its disk", index)

    assert act(port, 2, script, [0, 1])[1].found == "nothing of process 0 about its disk"


def test_primary_process_that_does_not_come_is_named(port: int) -> None:
    (error,) = act(port, 2, lambda all_gather_object, index: None, [1], timeout=0)
    assert (error.field, error.found) == ("coordinator", "Connection refused")


def test_port_in_use_is_named(port: int) -> None:
    with socket.create_server(("", port)):
        (error,) = act(port, 2, lambda all_gather_object, index: None, [0], timeout=1)
    assert error.found.startswith("Address already in use")
    assert error.expected == "a free port"


def test_strangers_are_no_processes(port: int) -> None:
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(
            act, port, 2, lambda all_gather_object, index: all_gather_object("a", index), [0]
        )
        with socket.socket() as stranger:
            while stranger.connect_ex(("localhost", port)):
                time.sleep(0.01)
            stranger.sendall(b"GET / HTTP/1.1\r\n")
            assert act(
                port, 2, lambda all_gather_object, index: all_gather_object("a", index), [1]
            ) == [[0, 1]]
        assert found.result() == [[0, 1]]


def test_slurm_says_where_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_NODELIST": "node[007-009]",
        "SLURM_NTASKS": "24",
        "SLURM_PROCID": "9",
        "SLURM_LOCALID": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert resolve_process("auto", None, None, 1) == ProcessInfo("node007:61457", 24, 9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("auto", None, None), "Slurm, a TPU pod or a JobSet"),
        (("localhost", 2, 0), "found localhost, expected HOST:PORT"),
        (("localhost:http", 2, 0), "found localhost:http"),
        (("localhost:1", None, 0), "found 0 of None"),
        (("localhost:1", 2, None), "found None of 2"),
        (("localhost:1", 2, 2), "found 2 of 2"),
        (("localhost:1", 2, -1), "found -1 of 2"),
    ],
)
def test_process_numbers_are_checked(words: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_process(*words, 1)
