"""The machine: `bench`, `compile`, `info`."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, check_numbers, takes_overrides
from tumorchain_jax.errors import InputError


def add_commands(command: Command) -> None:
    """What a machine does, or would."""
    bench = command("bench", _bench, "Where the time goes on this machine")
    bench.add_argument(
        "what",
        choices=["data", "step", "train", "input", "decode", "loop", "convert", "segment"],
        help="phantoms; a training step; training of 100M parameters beside PyTorch; reading and "
        "preparing scans beside MONAI; reading and writing, and the reasoning loop, at the size "
        "of Qwen2.5-0.5B, beside transformers; a checkpoint of 3B in and out, beside cp; a tile "
        "and a scan through nnU-Net's full network, beside nnU-Net",
    )
    bench.add_argument("--config", type=Path, help="of the step")
    bench.add_argument("--json", action="store_true")
    takes_overrides(bench)

    compile_ = command("compile", _compile, "What a training needs on a machine, without it")
    add = compile_.add_argument
    add("--config", type=Path, required=True, help="a configs/*.py file")
    add("--target", nargs="+", required=True, help="v5e-16, v5p-32, 2xv5e-16, h100-8 and so on")
    add(
        "--program",
        nargs="+",
        choices=["train", "reason", "segment"],
        default=["train"],
        help="an optimizer step; the reasoning loop; the network of a segmenter on tiles",
    )
    add("--batch", type=int, default=8, help="questions, or tiles, at once; default: 8")
    add("--json", action="store_true", help="the rows as JSON")
    takes_overrides(compile_)

    info = command("info", _info, "Versions, devices, tasks and organs")
    info.add_argument("--json", action="store_true")


def _bench(options: argparse.Namespace) -> int:
    from tumorchain_jax.bench.convert import bench_convert
    from tumorchain_jax.bench.data import bench_data
    from tumorchain_jax.bench.decode import bench_decode
    from tumorchain_jax.bench.input import bench_input
    from tumorchain_jax.bench.loop import bench_loop
    from tumorchain_jax.bench.segment import bench_segment
    from tumorchain_jax.bench.step import bench_step
    from tumorchain_jax.bench.timing import table
    from tumorchain_jax.bench.train import bench_train
    from tumorchain_jax.training.config import read_config

    others: dict[str, Any] = {
        "data": bench_data,
        "train": bench_train,
        "input": bench_input,
        "decode": bench_decode,
        "loop": bench_loop,
        "convert": bench_convert,
        "segment": bench_segment,
    }
    if options.what in others:
        values = others[options.what]()
    elif options.config is None:
        raise InputError("command line", "--config", "none", "a configs/*.py file", "name one")
    else:
        values = bench_step(read_config(options.config, options.overrides))
    print(json.dumps(values) if options.json else table(values))
    return 0


def _compile(options: argparse.Namespace) -> int:
    from tumorchain_jax.ahead_of_time.targets import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tumorchain_jax.ahead_of_time.command import compile_ahead, table
    from tumorchain_jax.training.config import read_config

    check_numbers(options, batch=(1, 4096))
    config = read_config(options.config, options.overrides)
    rows = list(compile_ahead(config, options.target, options.program, options.batch))
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0


def _info(options: argparse.Namespace) -> int:
    import jax

    from tumorchain_jax.analyze import NANO_CHECKPOINT, TASKS, versions
    from tumorchain_jax.scan.organs import ORGANS

    facts = {
        "notice": NOTICE,
        "versions": versions(),
        "devices": [str(device) for device in jax.devices()],
        "checkpoint": str(NANO_CHECKPOINT),
        "tasks": TASKS,
        "organs": {label: name for label, name in enumerate(ORGANS) if label},
    }
    if options.json:
        print(json.dumps(facts))
        return 0
    for name, value in facts.items():
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return 0
