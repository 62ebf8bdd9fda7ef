"""Compile the programs of a configuration ahead of time for target hardware."""

import re
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
from ml_collections import ConfigDict
from tqdm import tqdm

from tumorchain_jax.ahead_of_time.collectives import by_kind, collectives
from tumorchain_jax.ahead_of_time.programs import lower_inference, lower_training
from tumorchain_jax.ahead_of_time.targets import COMPILERS, Target, read_target
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.parallel.mesh import AXES, make_mesh
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.registry import build_program

GIB = 2**30
SPARE = 0.9
"""Share of the memory up to which a program fits well."""
LARGEST = 20
# Of "the total memory required for HLO temporaries (16.84G) exceeds available HBM (15.75G)" and of
# "Ran out of memory in memory space hbm. Used 28.24G of 15.75G hbm".
_NEEDS = re.compile(r"(?:\(|Used )([\d.]+)([KMGT])\)? (?:exceeds|of)")
Row = dict[str, Any]
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def compile_ahead(
    config: ConfigDict, targets: Sequence[str], programs: Sequence[str], batch_size: int
) -> Iterator[Row]:
    """Yield a row for each program on each target.

    Args:
        programs: `train`; `reason` for the task tumorchain, `segment` for segmentation.
        batch_size: questions of the reasoning loop, tiles of the segmenter.

    Raises:
        InputError: no such target or program, or the configuration does not fit the devices.
    """
    machines = [read_target(name) for name in targets]
    with tqdm(total=len(machines) * len(programs), unit=" programs", disable=None) as bar:
        for target in machines:
            for program in programs:
                yield compile_one(config, target, program, batch_size)
                bar.update()


def compile_one(config: ConfigDict, target: Target, program: str, batch_size: int) -> Row:
    """Compile one program into a row of the table.

    Raises:
        InputError: the configuration has no such program, or does not fit the devices.
    """
    mesh = make_mesh(dict(config.mesh), target.devices())
    row: Row = {
        "target": target.name,
        "program": program,
        "devices": mesh.size,
        "mesh": {axis: mesh.shape[axis] for axis in AXES},
        "hbm_limit_gib": target.chip.hbm_gib,
    }
    if program == "train":
        if "steps" not in config:
            expected = "another program: the configuration has no training"
            raise InputError("command line", "--program", program, expected, "choose one")
        training = build_program(config, mesh)
        row |= _training_facts(config, training, mesh.size, target)
        lowered = lower_training(training, mesh)
    else:
        row["batch_size"] = batch_size
        lowered = lower_inference(config, program, mesh, batch_size)
    row |= _compiled(lowered, target)
    if not row["fits"] or row["hbm_gib"] > SPARE * target.chip.hbm_gib:
        row["suggestion"] = _suggestion(config, row)
    return row | {"versions": _versions(target)}


def _training_facts(config: ConfigDict, program: Program, devices: int, target: Target) -> Row:
    row: Row = {
        "batch_size": config.batch_size,
        "accumulation": program.accumulation,
        **program.facts,
    }
    if program.flops:
        row["model_tflop"] = _rounded(program.flops / 1e12)
        peak = devices * target.chip.peak_tflops
        row["seconds_at_full_peak"] = _rounded(program.flops / 1e12 / peak)
    return row


def _compiled(lowered: Any, target: Target) -> Row:
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        needed = needed_gib(str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) and needed is None:
            raise
        refusal = " ".join(str(error).split())[:500]
        seconds = _since(started)
        return {"fits": False, "hbm_gib": needed, "refusal": refusal, "compile_seconds": seconds}
    seconds = _since(started)
    memory = compiled.memory_analysis()
    gib = _peak(memory) / GIB
    found = collectives(compiled.as_text())
    largest = sorted(found, key=lambda one: one.nbytes * one.times, reverse=True)[:LARGEST]
    return {
        "fits": gib <= target.chip.hbm_gib,
        "hbm_gib": round(gib, 3),
        "arguments_gib": round(memory.argument_size_in_bytes / GIB, 3),
        "temporaries_gib": round(memory.temp_size_in_bytes / GIB, 3),
        "compile_seconds": seconds,
        "collectives": by_kind(found),
        "largest_collectives": [vars(one) for one in largest],
    }


def needed_gib(refusal: str) -> float | None:
    """Read the memory needed from a compiler's out-of-memory message."""
    found = _NEEDS.search(refusal)
    return float(found[1]) * _UNITS[found[2]] / GIB if found else None


def _peak(memory: Any) -> int:
    """Bytes of memory that one device needs.

    XLA's own peak leaves out fragmentation between buffers, and is 0 for GPUs.
    """
    parts = memory.argument_size_in_bytes + memory.output_size_in_bytes
    parts += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    return max(memory.peak_memory_in_bytes, parts)


def _suggestion(config: ConfigDict, row: Row) -> str:
    """The cheapest change that needs less memory."""
    if row["program"] == "train":
        if row.get("remat", "full") != "full":
            return "--config.remat=full"
        micro_batch_size = config.get("micro_batch_size", 1)
        if micro_batch_size > 1 and row["accumulation"] * micro_batch_size > 1:
            return f"--config.micro_batch_size={micro_batch_size // 2}"
        if row.get("lora") and config.frozen_dtype != "bfloat16":
            return "--config.frozen_dtype=bfloat16"
        return "more devices, or --config.mesh.tensor=2 for half of a row's activations"
    if row["program"] == "segment":
        return "fewer tiles at once, or more devices"
    if config.mesh.tensor < config.model.decoder.num_key_value_heads:
        return f"--config.mesh.tensor={config.model.decoder.num_key_value_heads}"
    return "fewer questions at once, or more devices"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _since(started: float) -> float:
    return round(time.monotonic() - started, 1)


def _versions(target: Target) -> dict[str, str]:
    compiler, _ = COMPILERS[target.chip.platform]
    found = {}
    for package in ("jax", "jaxlib", compiler):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    head = ["target", "program", "data x fsdp x tensor x sequence", "rows at once", "GiB a device"]
    head += ["limit", "fits", "sent, GiB", "compiled in, s"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        at_once = row["batch_size"] // row.get("accumulation", 1)
        gib = row["hbm_gib"]
        sent = sum(kind["bytes"] for kind in row.get("collectives", {}).values()) / GIB
        fits = "no" if not row["fits"] else "yes" if gib <= SPARE * row["hbm_limit_gib"] else "just"
        lines.append(
            [
                row["target"],
                row["program"],
                " x ".join(str(size) for size in row["mesh"].values()),
                str(at_once),
                "?" if gib is None else f"{gib:.1f}",
                f"{row['hbm_limit_gib']:.1f}",
                fits + (f": try {row['suggestion']}" if "suggestion" in row else ""),
                f"{sent:.1f}" if "collectives" in row else "",
                f"{row['compile_seconds']:.0f}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
