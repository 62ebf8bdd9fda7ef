"""Target hardware by its vendors' names, and the devices to compile for.

TPU sizes are Google's: v5p and tpu7x count cores, two a chip, the others chips. A core of tpu7x is
a device of its own. https://cloud.google.com/tpu/docs has the shapes. `2xv5e-16` is two slices.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tumorchain_jax.ahead_of_time.h100 import H100
from tumorchain_jax.core.errors import InputError

SQUARES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8"}
CUBES |= {256: "4x8x8", 512: "8x8x8", 1024: "8x8x16", 2048: "8x16x16"}


@dataclass(frozen=True)
class Chip:
    """A kind of device.

    Attributes:
        hbm_gib: memory that a program can have on one device: a TPU's from the message of its
            compiler when it runs out, a GPU's 90 % of its memory, as JAX reserves it.
        peak_tflops: of one device, bfloat16, dense (vendor's data sheet).
        shapes: devices or, for v5p, chips -> topology.
        per_chip: of what a size counts, how many make a chip.
    """

    platform: str
    hbm_gib: float
    peak_tflops: float
    shapes: dict[int, str]
    per_chip: int = 1


CHIPS = {
    "v5e": Chip("tpu", 15.75, 197.0, SQUARES),
    "v5p": Chip("tpu", 95.74, 459.0, CUBES, per_chip=2),
    "v6e": Chip("tpu", 31.25, 918.0, SQUARES),
    "tpu7x": Chip("tpu", 94.75, 1153.5, CUBES, per_chip=2),
    "h100": Chip("cuda", 71.7, 989.4, {}),
}
COMPILERS = {
    "tpu": ("libtpu", 'pip install "jax[tpu]" (it needs no TPU)'),
    "cuda": (
        "jax-cuda13-pjrt",
        "pip install --no-deps jax-cuda13-plugin jax-cuda13-pjrt (of jax's own version)",
    ),
}
"""The package with the compiler of a platform, and how to install it."""
NAME = re.compile(r"(?:(\d+)x)?([a-z0-9]+)-(\d+)")
# The compilers read these when they start: there is no device to ask about or to try kernels on,
# and another process may use libtpu too. With a made-up worker libtpu does not warn.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_MIN_LOG_LEVEL": "3",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false",
}


@dataclass(frozen=True)
class Target:
    """A machine.

    Attributes:
        kind: of its chips, a key of `CHIPS`.
        size: of one slice, as in the name.
    """

    name: str
    kind: str
    chip: Chip
    size: int
    slices: int = 1

    def devices(self) -> Sequence[Any]:
        """The devices of a mesh to compile for; set `ENVIRONMENT` before JAX is imported.

        Raises:
            InputError: the compiler for it is not installed.
        """
        from jax.experimental import topologies

        platform = self.chip.platform
        compiler, hint = COMPILERS[platform]
        options = self._gpu_options() if platform == "cuda" else self._tpu_options()
        try:
            return topologies.get_topology_desc(platform=platform, **options).devices
        except RuntimeError as error:
            if _installed(compiler):
                raise
            raise InputError(self.name, "compiler", "none", compiler, hint) from error

    def _tpu_options(self) -> dict[str, Any]:
        shape = self.chip.shapes[self.size // self.chip.per_chip]
        options: dict[str, Any] = {"topology_name": f"{self.kind}:{shape}"}
        if self.slices > 1:
            options["num_slices"] = self.slices
        if self.size == 1:  # of a host's four
            options["chips_per_host_bounds"] = (1, 1, 1)
        return options

    def _gpu_options(self) -> dict[str, Any]:
        hosts = max(1, self.size // 8)
        topology = f"1x{hosts}x{self.size // hosts}"
        return {"topology_name": "h100", "topology": topology, "target_config": H100}


def read_target(name: str) -> Target:
    """A target by its name.

    Raises:
        InputError: there is none of that name.
    """
    found = NAME.fullmatch(name)
    if found and found[2] in CHIPS:
        chip, size = CHIPS[found[2]], int(found[3])
        count, rest = divmod(size, chip.per_chip)
        if chip.platform == "cuda" and not found[1]:
            if 1 <= size <= 8 or (size % 8 == 0 and size <= 1024):
                return Target(name, found[2], chip, size)
        elif not rest and count in chip.shapes and int(found[1] or 1) >= 1:
            return Target(name, found[2], chip, size, int(found[1] or 1))
    sizes = "; ".join(
        f"{kind}-N, N of {', '.join(str(n * chip.per_chip) for n in chip.shapes)}"
        for kind, chip in CHIPS.items()
        if chip.shapes
    )
    expected = f"{sizes}; h100-N, up to 8 or a multiple of 8; 2xv5e-16 for two slices"
    raise InputError("--target", "machine", name, expected, "name one of these")


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
