"""Check every host before training starts, and report all findings together.

Each process checks its own host. The processes then exchange their findings over plain TCP
connections (see `rendezvous.py`), not through the devices, which may be at fault.
"""

import hashlib
import math
import platform
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, version
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote, write_file
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.processes import TIMEOUT, join
from tumorchain_jax.parallel.rendezvous import AllGather, ProcessInfo, connect
from tumorchain_jax.training.registry import TASKS, TaskChecks, build_program, task_name
from tumorchain_jax.training.settings import check_settings

Facts = dict[str, Any]
"""Findings of one process on its host; most values are the `found` and `problem` of `_seen`."""
PLUGINS = ("libtpu", "jax-cuda", "jax-rocm")
SHARED_WITHIN = 20
"""Seconds until a file of another host must be visible: some shared folders refresh rarely."""
GIB = 2**30
HINTS = {
    "versions": "install the same versions on every host (launch/constraints.txt)",
    "configuration": "start every process with the same file and overrides",
    "workdir": "use a folder that all hosts share and can write to",
    "dataset": "use a folder that all hosts share",
    "init": "use folders that all hosts share",
    "devices": "use hosts of one kind",
}


@dataclass(frozen=True)
class Check:
    """One check; `found` is what was found, or what is wrong."""

    name: str
    ok: bool
    found: str


@dataclass(frozen=True)
class Preflight:
    """All checks, and the hosts' facts by process."""

    checks: list[Check]
    hosts: list[Facts]

    @property
    def ok(self) -> bool:
        """Whether training may start."""
        return all(check.ok for check in self.checks)


def preflight(config: ConfigDict, workdir: AnyPath, place: ProcessInfo) -> Preflight:
    """Check every host; call it in every process. It also initialises JAX's distributed runtime.

    Raises:
        InputError: a process did not connect, or reported nothing.
    """
    with connect(place, TIMEOUT) as all_gather_object:
        found = f"{place.count} processes" + f" by {place.address}" * (place.count > 1)
        checks = [Check("processes", True, found)]
        with _shared(workdir, place, all_gather_object) as seen_workdir:
            own = _look_at_host(config, workdir) | {"process": place.index, "workdir": seen_workdir}
            hosts = all_gather_object("its host", own)
        of_hosts = ("versions", "configuration", "workdir", "dataset", "init")
        checks += [_agree(name, hosts) for name in of_hosts]
        # With different versions, collective operations may crash or hang.
        if _agree("versions", hosts).ok:
            if place.count > 1:
                join(place.address, place.count, place.index)
            for facts, devices in zip(
                hosts, all_gather_object("devices", _seen(_devices)), strict=True
            ):
                facts["devices"] = devices
            checks.append(_agree("devices", hosts))
            # With different configurations some hosts would stop before a collective operation.
            if checks[-1].ok and _agree("configuration", hosts).ok:
                checks += _fit(config, workdir, min(facts["free_gib"] for facts in hosts))
    return Preflight(checks, hosts)


def text(found: Preflight) -> str:
    """A line for each check, then the hosts in a table."""
    lines = [f"{'ok' if c.ok else 'not ok':<8}{c.name:<15}{c.found}" for c in found.checks]
    columns = ("process", "host", "devices", "free_gib")
    rows = [columns] + [tuple(_cell(facts.get(name)) for name in columns) for facts in found.hosts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    seen = (value["found"] or "unknown") if isinstance(value, dict) else value
    return "not asked" if seen is None else str(seen)


# --------------------------------------------------------------- of one host


def _look_at_host(config: ConfigDict, workdir: AnyPath) -> Facts:
    return {
        "host": socket.gethostname(),
        "free_gib": _free_gib(workdir),
        "versions": _seen(_versions),
        "configuration": _seen(partial(_configuration, config)),
        "dataset": _seen(partial(_checks(config).data, config, workdir)),
        "init": _seen(partial(_checks(config).init, config, workdir)),
    }


def _seen(look: Callable[[], str]) -> dict[str, str]:
    try:
        return {"found": look(), "problem": ""}
    except InputError as error:
        return {"found": "", "problem": str(error)}
    except (OSError, RuntimeError) as error:
        return {"found": "", "problem": " ".join(str(error).split())[:300]}


def _versions() -> str:
    packages = {name: version(name) for name in ("tumorchain-jax", "jax", "jaxlib")}
    found = {"python": platform.python_version(), **packages, **_plugins()}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _plugins() -> dict[str, str]:
    # An interrupted installation has no name.
    found = {item.metadata["Name"] or "": item.version for item in distributions()}
    return {name: found[name] for name in sorted(found) if name.startswith(PLUGINS)}


def _configuration(config: ConfigDict) -> str:
    return f"sha256 {hashlib.sha256(config.to_json_best_effort().encode()).hexdigest()[:16]}"


def _free_gib(workdir: AnyPath) -> float:
    if is_remote(workdir):
        return math.inf
    workdir = Path(workdir)
    there = next(folder for folder in (workdir, *workdir.absolute().parents) if folder.exists())
    return round(shutil.disk_usage(there).free / GIB, 1)


def _devices() -> str:
    devices, backend = jax.local_devices(), jax.default_backend()
    if backend == "cpu" and _plugins() and not jax.config.values["jax_platforms"]:
        # JAX falls back to the CPU if a driver or a device is missing.
        expected = f"those of {', '.join(_plugins())}"
        hint = "check the driver, or set JAX_PLATFORMS=cpu"
        raise InputError("jax", "devices", f"{len(devices)} x cpu", expected, hint)
    kinds = sorted({device.device_kind for device in devices})
    return f"{len(devices)} x {', '.join(kinds)} ({backend})"


@contextmanager
def _shared(
    workdir: AnyPath, place: ProcessInfo, all_gather_object: AllGather
) -> Iterator[dict[str, str]]:
    """Check that this host can write to `workdir` and see the first process's file there."""
    name = all_gather_object("a file's name", f".preflight-{uuid.uuid4()}")[0]
    own = workdir / f"{name}-{place.index}"
    first = workdir / f"{name}-0"

    def write() -> str:
        workdir.mkdir(parents=True, exist_ok=True)
        write_file(own, name.encode())
        return str(workdir)

    def look() -> str:
        deadline = time.monotonic() + SHARED_WITHIN
        while not first.exists():
            if time.monotonic() > deadline:
                found, expected = "no file of the first process", "one folder on all hosts"
                raise InputError(workdir, "--workdir", found, expected, HINTS["workdir"])
            time.sleep(0.2)
        return str(workdir)

    written = _seen(write)
    try:
        # If the first process could not write, there is no file to look for.
        all_could = not all_gather_object("its file", written)[0]["problem"]
        yield _seen(look) if all_could and not written["problem"] else written
    finally:
        with suppress(OSError):
            own.unlink()


# -------------------------------------------------------------- of all hosts


def _agree(name: str, hosts: Sequence[Facts]) -> Check:
    """Check that no host has a problem and that all found the same."""
    problems: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for facts in hosts:
        seen, where = facts[name], f"process {facts['process']} on {facts['host']}"
        (problems if seen["problem"] else values).setdefault(
            seen["problem"] or seen["found"], []
        ).append(where)
    if problems:
        lines = [f"{problem} ({_several(where)})" for problem, where in problems.items()]
        return Check(name, False, "; ".join(lines))
    if len(values) > 1:
        lines = [f"{value} ({_several(where)})" for value, where in values.items()]
        found = "; ".join(lines)
        return Check(name, False, f"found {found}, expected the same on all; {HINTS[name]}")
    return Check(name, True, *values)


def _several(where: Sequence[str]) -> str:
    return where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more"


# ------------------------------------------------------- of the configuration


def _fit(config: ConfigDict, workdir: AnyPath, free_gib: float) -> list[Check]:
    """Check the configuration against the devices and the disk, up to the first failure."""
    looks: dict[str, Callable[[], str]] = {
        "settings": partial(_settings, config),
        "mesh": partial(_mesh, config),
        "batch": partial(_batch, config),
        "weights": partial(_weights, config),
        "memory": partial(_memory, config),
        "disk": partial(_disk, config, workdir, free_gib),
        "collective": _collective,
    }
    checks: list[Check] = []
    for name, look in looks.items():
        seen = _seen(look)
        checks.append(Check(name, not seen["problem"], seen["problem"] or seen["found"]))
        if seen["problem"]:
            break
    return checks


def _checks(config: ConfigDict) -> TaskChecks:
    return TASKS[task_name(config)].checks


def _settings(config: ConfigDict) -> str:
    check_settings(config)
    return f"{task_name(config)}: {config.steps} steps of {config.batch_size} rows"


def _mesh(config: ConfigDict) -> str:
    shape = make_mesh(dict(config.mesh)).shape
    return ", ".join(f"{axis} {size}" for axis, size in shape.items())


def _batch(config: ConfigDict) -> str:
    return _checks(config).batch(config, make_mesh(dict(config.mesh)))


def _weights(config: ConfigDict) -> str:
    return f"{_state_gib(config):.2f} GiB with the optimizer's state, over all devices"


def _memory(config: ConfigDict) -> str:
    mesh = make_mesh(dict(config.mesh))
    return _checks(config).step(config, build_program(config, mesh), mesh)


def _disk(config: ConfigDict, workdir: AnyPath, free_gib: float) -> str:
    # Plus the best and the one being written, minus those that exist already.
    there = sum(path.name.isdecimal() for path in (workdir / "checkpoints").glob("*"))
    copies = max(1, config.checkpoint.keep + 2 - there)
    needed = f"{copies} checkpoints of at most {_state_gib(config):.2f} GiB"
    if free_gib < copies * _state_gib(config):
        hint = "free disk space, or lower config.checkpoint.keep"
        raise InputError("--workdir", "disk", f"{free_gib:.1f} GiB free", needed, hint)
    if is_remote(workdir):
        return f"an object store, for {needed}"
    return f"{free_gib:.1f} GiB free for {needed}"


def _state_gib(config: ConfigDict) -> float:
    state = build_program(config, make_mesh(dict(config.mesh))).state
    return sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) / GIB


def _collective() -> str:
    found: Any = multihost_utils.process_allgather(np.int32(jax.process_index()))
    if sorted(np.ravel(found).tolist()) != list(range(jax.process_count())):
        expected = "every process's number"
        raise InputError("devices", "all-gather", str(found), expected, "check the network")
    return f"{jax.device_count()} devices reach each other"
