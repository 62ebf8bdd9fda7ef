"""Worker pools for many equal tasks: local processes, or a Ray cluster."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from tumorchain_jax.core.errors import InputError

T = TypeVar("T")


def local_workers(count: int | None = None) -> Executor:
    """Processes of this machine, as many as it has cores by default; one alone is this process.

    JAX has threads, so they are spawned; an executor, unlike a pool, reports a dead worker.
    """
    count = count or os.cpu_count()
    if count == 1:
        return _ThisProcess()
    return ProcessPoolExecutor(count, get_context("spawn"), initializer=_end_with_parent)


class _ThisProcess(Executor):
    """Runs each task when it is submitted, or when its result is asked for by `map`."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # as a worker's, it is raised where the result is asked for
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **_: Any) -> Iterator[T]:
        return map(fn, *iterables)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class RayWorkers(Executor):
    """A Ray cluster: each task takes one CPU of it.

    The package must be installed on every node.

    Args:
        address: HOST:PORT of the cluster; empty: the one that Ray finds, else this machine alone.

    Raises:
        InputError: there is no Ray here, or no cluster at that address.
    """

    def __init__(self, address: str = ""):
        try:
            import ray
        except ImportError as error:
            hint = "install tumorchain-jax[ray], or leave --ray out"
            raise InputError("command line", "--ray", "no Ray here", "Ray", hint) from error
        if address:
            _check_address(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError) as error:
            raise _no_cluster(f"{address} ({error})") from error
        self._ray = ray
        self._run = ray.remote(_run)

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Have the task done."""
        return self._run.remote(task, args, kwargs).future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; tasks that are not done are dropped."""
        self._ray.shutdown()


def _check_address(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(f"{address} ({error})") from error


def _no_cluster(found: str) -> InputError:
    hint = "check it, and what Ray on both sides says"
    return InputError("command line", "--ray", found, "HOST:PORT of a Ray cluster", hint)


def _run(task: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return task(*args, **kwargs)
