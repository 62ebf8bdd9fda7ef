"""Benchmark of import, export and verification of a 3B checkpoint against `cp`."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import TABLE, transformers_config
from tumorchain_jax.models.language.qwen2.model import QWEN2_5_3B, Qwen2Config
from tumorchain_jax.models.weight_map import sources
from tumorchain_jax.weights.matching import decoder_shapes
from tumorchain_jax.weights.tensor_files import DTYPES, PIECE, TensorWriter

TOWER_BLOCKS = 32
TOWER = {
    "attn.qkv.weight": (3840, 1280),
    "attn.proj.weight": (1280, 1280),
    "mlp.gate_proj.weight": (3420, 1280),
    "mlp.up_proj.weight": (3420, 1280),
    "mlp.down_proj.weight": (1280, 3420),
}
"""The large weights of a block of its image tower, which is passed through."""

# The system's own count for a child begins with the memory of its parent.
_CHILD = """
import sys
from tumorchain_jax.cli.main import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(code)
"""


def bench_convert(
    config: Qwen2Config = QWEN2_5_3B, tower_blocks: int = TOWER_BLOCKS, folder: Path | None = None
) -> dict[str, float]:
    """Measure seconds and peak memory of each verb of `tumorchain convert`, in its own process.

    Args:
        config: of a random bfloat16 checkpoint.
        folder: where to put it and its three copies; a temporary one by default.

    Raises:
        InputError: there is no room for them.
    """
    with TemporaryDirectory(dir=folder) as scratch:
        source, imported, exported = (Path(scratch) / name for name in ("source", "in", "out"))
        nbytes = _write_random(source, config, tower_blocks)
        started = time.perf_counter()
        subprocess.run(["cp", "-r", source, Path(scratch) / "copy"], check=True)
        cp_s = time.perf_counter() - started
        shutil.rmtree(Path(scratch) / "copy")
        values = {"checkpoint, GB": nbytes / 1e9, "cp, s": cp_s}
        for verb, (first, second) in {
            "import": (source, imported),
            "export": (imported, exported),
            "verify": (source, exported),
        }.items():
            took, peak = _measure(["convert", verb, "-i", str(first), "-o", str(second)])
            values |= {
                f"{verb}, s": took,
                f"{verb}, times cp": took / cp_s,
                f"{verb}, peak GB": peak / 1e9,
            }
    return values


def _write_random(folder: Path, config: Qwen2Config, tower_blocks: int) -> int:
    """Write a random checkpoint; the number of its bytes."""
    like = {
        path: jax.ShapeDtypeStruct(shape, jnp.float32)
        for path, shape in decoder_shapes(config).items()
    }
    bfloat16 = DTYPES["BF16"]
    shapes = {
        f"visual.blocks.{block}.{name}": shape
        for block in range(tower_blocks)
        for name, shape in TOWER.items()
    }
    for path, source in sources(TABLE, like).items():
        layer = like[path].shape[1:] if source.stacked else like[path].shape
        shape = source.transform.from_ours(np.broadcast_to(np.int8(0), layer)).shape
        shapes |= dict.fromkeys(source.keys, shape)
    nbytes = sum(prod(shape) * bfloat16.itemsize for shape in shapes.values())
    if (free := shutil.disk_usage(folder.parent).free) < 4 * nbytes:
        found, expected = f"{free / 1e9:.0f} GB free", f"{4 * nbytes / 1e9:.0f} GB or more"
        raise InputError(folder.parent, "disk", found, expected, "set TMPDIR to another disk")
    folder.mkdir()
    fields = {**transformers_config(config), "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(fields))
    rng = np.random.default_rng(0)
    noise = (rng.standard_normal(2 * PIECE, np.float32) * 0.02).astype(bfloat16)
    with (folder / "model.safetensors").open("w+b") as stream:
        writer = TensorWriter(stream, {key: (bfloat16, shape) for key, shape in shapes.items()})
        for key, shape in shapes.items():
            for start in range(0, prod(shape), PIECE):
                count = min(PIECE, prod(shape) - start)
                first = rng.integers(PIECE)
                writer.write(key, start * bfloat16.itemsize, noise[first : first + count])
    return nbytes


def _measure(arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds and peak memory in bytes of a `tumorchain` command, in a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    started = time.perf_counter()
    command = [sys.executable, "-c", _CHILD, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} ended with {done.returncode}")
    return time.perf_counter() - started, float(done.stdout.splitlines()[-1]) * 1024
