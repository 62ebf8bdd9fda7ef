"""`tumorchain bench`: measure speed on this machine against reference implementations."""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tumorchain_jax.cli.options import (
    Command,
    takes_overrides,
)
from tumorchain_jax.core.errors import InputError


def add_command(command: Command) -> None:
    """Add the `bench` subcommand."""
    bench = command(
        "bench", _bench, "Measure speed on this machine against reference implementations"
    )
    bench.add_argument(
        "what",
        choices=[
            "data",
            "step",
            "train",
            "input",
            "decode",
            "loop",
            "convert",
            "segment",
            "llm",
            "serve",
            "vlm",
            "classify",
        ],
        help="data: making phantoms; step: a training step of --config; train: training of 100M "
        "parameters, against PyTorch; input: reading and preparing scans, against MONAI; decode, "
        "loop: the decoder and the reasoning loop at the size of Qwen2.5-0.5B, against "
        "transformers; convert: a checkpoint of 3B in and out, against cp; segment: a tile and a "
        "scan through nnU-Net's full network, against nnU-Net; llm: the client for language "
        "models, against bare calls; serve: eight questions at once to a server of "
        "nano, against one after the other; vlm: Qwen2.5-VL's tower and training steps "
        "of its nano, against transformers; classify: training steps of ResNet-50 and ViT-B, "
        "against timm",
    )
    bench.add_argument("--config", type=Path, metavar="FILE", help="configuration of the step")
    bench.add_argument("--json", action="store_true", help="print results as JSON")
    takes_overrides(bench)


def _bench(options: argparse.Namespace) -> int:
    if find_spec("tumorchain_jax.bench") is None:
        found, hint = "an installed package without benchmarks", "run it from a checkout"
        raise InputError("tumorchain bench", "tumorchain_jax/bench", found, "a checkout", hint)
    from tumorchain_jax.bench.classify import bench_classify
    from tumorchain_jax.bench.convert import bench_convert
    from tumorchain_jax.bench.data import bench_data
    from tumorchain_jax.bench.decode import bench_decode
    from tumorchain_jax.bench.input import bench_input
    from tumorchain_jax.bench.llm import bench_llm
    from tumorchain_jax.bench.loop import bench_loop
    from tumorchain_jax.bench.segment import bench_segment
    from tumorchain_jax.bench.serve import bench_serve
    from tumorchain_jax.bench.step import bench_step
    from tumorchain_jax.bench.timing import table
    from tumorchain_jax.bench.train import bench_train
    from tumorchain_jax.bench.vision_language import bench_vision_language
    from tumorchain_jax.core.config import read_config

    others: dict[str, Any] = {
        "data": bench_data,
        "train": bench_train,
        "input": bench_input,
        "decode": bench_decode,
        "loop": bench_loop,
        "convert": bench_convert,
        "segment": bench_segment,
        "llm": bench_llm,
        "serve": bench_serve,
        "vlm": bench_vision_language,
        "classify": bench_classify,
    }
    if options.what in others:
        values = others[options.what]()
    elif options.config is None:
        raise InputError("command line", "--config", "none", "a configuration", "try --config nano")
    else:
        values = bench_step(read_config(options.config, options.overrides))
    print(json.dumps(values) if options.json else table(values))
    return 0
