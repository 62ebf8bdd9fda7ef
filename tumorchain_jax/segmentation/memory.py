"""Memory estimate of segmenting a scan, and the check before it starts."""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import jax

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.segmentation.plans import Plan
from tumorchain_jax.segmentation.preprocess import Grids
from tumorchain_jax.segmentation.resample import PLANES
from tumorchain_jax.segmentation.tiles import SLAB

GIB = 2**30
MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup/memory.max")
# For what is not counted here: allocators' overhead and numpy's temporary arrays.
OVERHEAD = 1.1


@dataclass(frozen=True)
class Peak:
    """Peak memory in bytes, in addition to the scan and the model, which are loaded already.

    Attributes:
        preprocessing: on the host.
        labels: on the host, while tiles run.
        tiles: on the device, which may be the host.
    """

    preprocessing: int
    labels: int
    tiles: int


def estimate_memory(plan: Plan, grids: Grids, program: int, bands: int, bytes_each: int) -> Peak:
    """Estimate the peak memory of a scan.

    Args:
        program: bytes of the tile program, including its tiles and their logits.
        bands: number of bands of summed logits.
        bytes_each: bytes of each of these sums.
    """
    crop, classes, depth = prod(grids.shape), plan.network.classes, plan.patch_size[0]
    sizes = zip(grids.network_shape, plan.patch_size, strict=True)
    padded = [max(size, tile) for size, tile in sizes]
    plane = padded[1] * padded[2]
    # The sums, their mean and the last slab's, in float32, on their way from the device.
    slabs = 5 * 4 * classes * min(SLAB, depth) * plane
    label_planes = 6 * 4 * PLANES * grids.shape[1] * grids.shape[2]
    maps = 2 * crop * (1 if classes <= 255 else 2)
    return Peak(
        preprocessing=4 * max(_resampling(grids), _normalizing(plan) * crop),
        labels=2 * 4 * prod(padded) + slabs + label_planes + maps,
        tiles=program + bands * bytes_each * (classes + 1) * depth * plane,
    )


def _resampling(grids: Grids) -> int:
    """Voxels held while one axis after the other is resampled, shrinking axes first."""
    shape, most = list(grids.shape), 0
    axes = sorted(range(3), key=lambda axis: grids.network_shape[axis] / grids.shape[axis])
    for axis in axes:
        before = prod(shape)
        shape[axis] = grids.network_shape[axis]
        most = max(most, before + prod(shape))
    return most


def _normalizing(plan: Plan) -> int:
    """Float32 copies of the scan held while it is normalized."""
    return 4 if plan.normalization[0] == "ZScoreNormalization" else 1


def check_memory(peak: Peak, limit_gib: float | None, source: str) -> None:
    """Refuse a scan that does not fit into memory.

    Args:
        limit_gib: of the host's memory; None: what is free.
        source: of the scan, for the message.

    Raises:
        InputError: it does not.
    """
    device = jax.local_devices()[0]
    labels = peak.labels
    if device.platform == "cpu":
        labels += peak.tiles
    else:
        # A device that does not report its memory is not checked.
        stats = device.memory_stats() or {}
        free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
        if "bytes_limit" in stats:
            _compare(peak.tiles, free, f"memory of {device.device_kind}", source)
    limit = free_bytes() if limit_gib is None else int(limit_gib * GIB)
    _compare(max(peak.preprocessing, labels), limit, "memory", source)


def free_bytes() -> int:
    """Return the free memory of the host in bytes, within its container's limit."""
    if not MEMINFO.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit = CONTAINER.read_text().strip() if CONTAINER.exists() else "max"
    return available if limit == "max" else min(available, int(limit))


def _compare(needed: int, limit: int, what: str, source: str) -> None:
    needed = int(needed * OVERHEAD)
    if needed > limit:
        found = f"a scan that needs {needed / GIB:.1f} GiB"
        expected = f"at most {limit / GIB:.1f} GiB"
        hint = "crop or resample it, or raise the limit where there is more"
        raise InputError(source, what, found, expected, hint)
