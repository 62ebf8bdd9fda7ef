"""Kept label maps: whole, bounded, and never the reason that a run fails."""

import os
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.cache import SegmentationCache, scan_hash, segmentation_folder

SHAPE = (6, 7, 8)
LABELS = np.arange(6 * 7 * 8, dtype=np.uint8).reshape(SHAPE)


def test_labels_come_back(tmp_path: Path) -> None:
    cache = SegmentationCache(tmp_path / "new" / "folder")
    assert cache.get("a", SHAPE) is None
    cache.put("a", LABELS)
    np.testing.assert_array_equal(cache.get("a", SHAPE), LABELS)
    assert cache.get("b", SHAPE) is None
    assert cache.get("a", (6, 7, 9)) is None
    assert [path.name for path in cache.folder.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_damaged_file_is_taken_for_absent(tmp_path: Path, content: bytes) -> None:
    cache = SegmentationCache(tmp_path)
    (tmp_path / "a.npz").write_bytes(content)
    assert cache.get("a", SHAPE) is None
    cache.put("a", LABELS)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    assert cache.get("a", SHAPE) is None
    np.savez(tmp_path / "a.npz", labels=np.array([object()]))
    assert cache.get("a", SHAPE) is None, "nothing is unpickled"


def test_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = SegmentationCache(tmp_path / "file")
    cache.put("a", LABELS)
    assert cache.get("a", SHAPE) is None


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 255, (40, 40, 40), np.uint8)
    unbounded = SegmentationCache(tmp_path)
    unbounded.put("size", noise)
    size = (tmp_path / "size.npz").stat().st_size
    (tmp_path / "size.npz").unlink()
    cache = SegmentationCache(tmp_path, limit=int(2.5 * size))
    for second, key in enumerate("ab", start=1):
        cache.put(key, noise)
        os.utime(tmp_path / f"{key}.npz", (second, second))
    assert cache.get("a", noise.shape) is not None  # so that b is older
    cache.put("c", noise)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "c.npz"]


def test_scan_is_known_by_its_voxels_and_place() -> None:
    ct = Volume(LABELS.astype(np.float32), np.eye(4), "one.nii")
    same = Volume(np.asfortranarray(LABELS.astype(np.int16)), np.eye(4), "other.nii")
    assert scan_hash(ct) == scan_hash(same)
    brighter = LABELS.astype(np.float32)
    brighter[3, 3, 3] += 1
    others = [
        Volume(brighter, np.eye(4)),
        Volume(ct.voxels, np.diag([1, 1, 2.0, 1])),
        Volume(ct.voxels.reshape(7, 6, 8), np.eye(4)),
        Volume(ct.voxels[::-1], np.eye(4)),
    ]
    assert len({scan_hash(ct), *map(scan_hash, others)}) == 5


def test_it_lies_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert segmentation_folder() == tmp_path / "tumorchain" / "segmentations"
    assert SegmentationCache().folder == segmentation_folder()
