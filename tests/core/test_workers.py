import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.workers import RayWorkers, local_workers

# Starts a worker, says its process id and is killed.
KILLED = """
import os, signal
from tumorchain_jax.core.workers import local_workers
if __name__ == "__main__":
    print(local_workers(2).submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class FakeRay(SimpleNamespace):
    """As much of Ray as is used, on threads: its tasks are functions made remote, which answer
    with references, which become futures.
    """

    def __init__(self) -> None:
        self.threads: Executor | None = None
        self.address: object = "never asked"
        self.refuses = False

    def init(self, address: str | None, **options: object) -> None:
        if self.refuses:
            raise ConnectionError("not a\ncluster")
        self.address, self.threads = address, ThreadPoolExecutor(2)

    def remote(self, function):
        def start(*arguments: object) -> SimpleNamespace:
            assert self.threads is not None
            future: Future = self.threads.submit(function, *arguments)
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=start)

    def shutdown(self) -> None:
        assert self.threads is not None
        self.threads.shutdown()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_ray_does_the_tasks_in_order_of_asking(ray: FakeRay, port: int) -> None:
    with RayWorkers(f"127.0.0.1:{port}") as workers:
        assert list(workers.map(pow, range(5), [2] * 5)) == [0, 1, 4, 9, 16]
        assert workers.submit(int, "ff", base=16).result() == 255
        with pytest.raises(ZeroDivisionError):
            workers.submit(divmod, 1, 0).result()
    assert ray.address == f"127.0.0.1:{port}"
    with pytest.raises(RuntimeError, match="after shutdown"):
        workers.submit(int)
    RayWorkers()
    assert ray.address is None


def test_ray_that_is_not_there_is_told_in_one_line(
    ray: FakeRay, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.refuses = True
    for address in (f"127.0.0.1:{port}", "127.0.0.1:1", "127.0.0.1:99999", "auto", "a:b"):
        with pytest.raises(InputError, match=f"--ray: found {address} .*HOST:PORT") as error:
            RayWorkers(address)
        assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"no Ray here.*install tumorchain-jax\[ray\]"):
        RayWorkers()


def test_workers_are_processes_that_end_with_the_one_that_started_them(tmp_path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    done = subprocess.run([sys.executable, tmp_path / "killed.py"], capture_output=True, text=True)
    worker = int(done.stdout)
    for _ in range(100):
        if not _runs(worker):
            break
        time.sleep(0.1)
    assert not _runs(worker)
    with local_workers(2) as workers:
        assert workers.submit(os.getpid).result() != os.getpid()


def test_one_worker_is_this_process() -> None:
    with local_workers(1) as workers:
        assert workers.submit(os.getpid).result() == os.getpid()
        failed = workers.submit(divmod, 1, 0)
        with pytest.raises(ZeroDivisionError):
            failed.result()
        results = workers.map(divmod, (7, 1), (2, 0))
        assert next(results) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            next(results)


def _runs(process: int) -> bool:
    """A process that ended but was not waited for does not run."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
