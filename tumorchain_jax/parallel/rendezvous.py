"""Connect all processes at one address, before JAX is initialised.

JAX aborts a process when another does not come; here the error of every process names the missing
one. The primary process listens; in each round every process sends it a line, and receives the
lines of all.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any

from tumorchain_jax.core.errors import InputError

AllGather = Callable[[str, Any], list[Any]]
"""(name of the value, a process's own value) -> the values of all processes, in order."""
GRACE = 30
"""Seconds that a process waits longer than the primary one, which knows who is missing."""
ANSWER = 5
"""Seconds in which a process that is running answers."""


@dataclass(frozen=True)
class ProcessInfo:
    """The identity of a process among several.

    Attributes:
        address: `HOST:PORT` of the first.
        count, index: how many there are, and which this is.
    """

    address: str
    count: int
    index: int


SINGLE_PROCESS = ProcessInfo("", 1, 0)


def resolve_process(
    address: str, count: int | None, index: int | None, timeout: int
) -> ProcessInfo:
    """Resolve a process from its arguments, or for `auto` from a TPU pod, Slurm or Kubernetes.

    Raises:
        InputError: an argument is wrong or missing, or no scheduler is found.
    """
    if address == "auto":
        address, count, index = _ask_scheduler(timeout)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError("command line", "--coordinator", address, "HOST:PORT or auto", "change it")
    if count is None or index is None or not 0 <= index < count:
        expected = "--processes N and --process I, from 0 to N - 1"
        which = f"{index} of {count}"
        raise InputError("command line", "--process", which, expected, "change them")
    return ProcessInfo(address, count, index)


def _ask_scheduler(timeout: int) -> tuple[str, int | None, int | None]:
    # How `jax.distributed.initialize` finds it; there is no public name.
    from jax._src.clusters import ClusterEnv

    ask = ClusterEnv.auto_detect_unset_distributed_params
    said = "none"
    try:
        address, count, index, _ = ask(None, None, None, None, None, timeout)
    except (OSError, RuntimeError, ValueError) as error:
        address, said = None, " ".join(str(error).split())[:200]
    if address is None:
        hint = "start it by one of these, or name HOST:PORT"
        raise InputError("auto", "--coordinator", said, "Slurm, a TPU pod or a JobSet", hint)
    return address, count, index


@contextmanager
def connect(place: ProcessInfo, timeout: int) -> Iterator[AllGather]:
    """Wait for all processes; yields the function that gathers a value of each.

    The port is free again once all are connected; later rounds use these connections.

    Raises:
        InputError: some did not connect, or sent nothing, within `timeout` seconds. Every other
            process raises it, with their numbers.
    """
    if place.count == 1:
        yield lambda name, value: [value]
        return
    with ExitStack() as stack:
        if place.index:
            yield _joined(place, timeout, stack)
        else:
            yield _gathered(place, timeout, stack)


def _joined(place: ProcessInfo, timeout: int, stack: ExitStack) -> AllGather:
    first = stack.enter_context(closing(_connect(place, timeout)))
    first.settimeout(timeout + GRACE)
    file = stack.enter_context(first.makefile("rw", encoding="utf-8"))

    def all_gather_object(name: str, value: Any) -> list[Any]:
        try:
            _send(file, value)
            values = json.loads(file.readline())
        except (OSError, ValueError) as error:
            found, hint = f"nothing of process 0 about {name}", "look at what it said on its host"
            raise InputError(place.address, "processes", found, "its word", hint) from error
        if isinstance(values, str):
            raise _missing(place, values)
        return list(values)

    _send(file, place.index)
    all_gather_object("being here", None)
    return all_gather_object


def _connect(place: ProcessInfo, timeout: int) -> socket.socket:
    host, _, port = place.address.rpartition(":")
    deadline = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), ANSWER)
        except OSError as error:
            if time.monotonic() > deadline:
                found = error.strerror or str(error)
                expected = f"process 0 within {timeout} s"
                hint = "check that it was started, the host's name, and that the port is open"
                raise InputError(place.address, "coordinator", found, expected, hint) from error
        time.sleep(0.5)


def _gathered(place: ProcessInfo, timeout: int, stack: ExitStack) -> AllGather:
    files = _accept(place, timeout, stack)

    def all_gather_object(name: str, value: Any) -> list[Any]:
        values = {0: value}
        deadline = time.monotonic() + timeout
        for index, (connection, file) in files.items():
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                values[index] = json.loads(file.readline())
            except (OSError, ValueError):
                continue
        missing = [index for index in range(place.count) if index not in values]
        which = f"nothing of process {', '.join(map(str, missing))} about {name}"
        for connection, file in files.values():
            connection.settimeout(GRACE)
            try:
                _send(file, which if missing else [values[index] for index in range(place.count)])
            except OSError:
                continue  # the next round fails, or there is none
        if missing:
            raise _missing(place, which)
        return [values[index] for index in range(place.count)]

    all_gather_object("being here", None)
    return all_gather_object


def _accept(
    place: ProcessInfo, timeout: int, stack: ExitStack
) -> dict[int, tuple[socket.socket, TextIOWrapper]]:
    port = int(place.address.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        found, hint = error.strerror or str(error), "choose another, or end what uses it"
        raise InputError(place.address, "coordinator", found, "a free port", hint) from error
    files: dict[int, tuple[socket.socket, TextIOWrapper]] = {}
    deadline = time.monotonic() + timeout
    with server:
        while len(files) < place.count - 1 and time.monotonic() < deadline:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection = stack.enter_context(closing(server.accept()[0]))
                connection.settimeout(ANSWER)
                file = stack.enter_context(connection.makefile("rw", encoding="utf-8"))
                files[int(file.readline())] = connection, file
            except (OSError, ValueError):
                continue  # no one came, or a stranger
    return files


def _send(file: TextIOWrapper, value: Any) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()


def _missing(place: ProcessInfo, which: str) -> InputError:
    expected, hint = f"all {place.count} processes", "see whether it was started and what it said"
    return InputError(place.address, "processes", which, expected, hint)
