from pathlib import Path
from unittest.mock import Mock

import jax
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.segmentation import memory
from tumorchain_jax.segmentation.memory import GIB, Peak, check_memory, estimate_memory, free_bytes
from tumorchain_jax.segmentation.plans import Plan
from tumorchain_jax.segmentation.preprocess import Grids

WHOLE = slice(None), slice(None), slice(None)


def grids(shape: tuple[int, int, int], network_shape: tuple[int, int, int]) -> Grids:
    return Grids(WHOLE, shape, (1.0, 1.0, 1.0), network_shape)


def test_what_is_counted(small_plan: Plan) -> None:
    """A scan twice as fine as the network's grid: tiles of 8 x 16 x 16, three classes."""
    peak = estimate_memory(small_plan, grids((40, 64, 100), (20, 32, 50)), 1000, 1, 4)
    assert peak.preprocessing == 4 * (40 * 64 * 100 + 20 * 64 * 100)
    assert peak.tiles == 1000 + 4 * (3 + 1) * 8 * 32 * 50
    image, slabs, maps = 8 * 20 * 32 * 50, 20 * 3 * 8 * 32 * 50, 2 * 40 * 64 * 100
    assert peak.labels == image + slabs + maps + 24 * 4 * 64 * 100


def test_longer_scans_take_no_more_logits(small_plan: Plan) -> None:
    short, long = (
        estimate_memory(small_plan, grids(s, s), 0, 1, 4) for s in [(50, 64, 64), (500, 64, 64)]
    )
    assert short.tiles == long.tiles
    assert long.labels - short.labels == (8 + 2) * 450 * 64 * 64


def test_scan_that_does_not_fit_is_refused() -> None:
    peak = Peak(preprocessing=GIB, labels=GIB, tiles=GIB)
    check_memory(peak, 2.3, "scan")
    line = "scan: memory: found a scan that needs 2.2 GiB, expected at most 2.1 GiB"
    with pytest.raises(InputError, match=line):
        check_memory(peak, 2.1, "scan")


def test_accelerator_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Mock(platform="gpu", device_kind="H100")
    device.memory_stats.return_value = {"bytes_limit": 3 * GIB, "bytes_in_use": 2 * GIB}
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    check_memory(Peak(GIB, GIB, GIB // 2), 1.2, "scan")
    line = "scan: memory of H100: found a scan that needs 1.1 GiB, expected at most 1.0 GiB"
    with pytest.raises(InputError, match=line):
        check_memory(Peak(GIB, GIB, GIB), 1.2, "scan")
    device.memory_stats.return_value = None
    check_memory(Peak(GIB, GIB, GIB), 1.2, "scan")


def test_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_bytes() > 0
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:  4000 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "CONTAINER", limit)
    assert free_bytes() == 4_096_000
    for text, expected in (("max\n", 4_096_000), ("1000\n", 1000)):
        limit.write_text(text)
        assert free_bytes() == expected
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "none")
    assert free_bytes() > 4_096_000
