"""Cache of label maps: the same scan and the same weights are not run twice.

A file is named by a hash of both, and holds labels and nothing else about the patient.
"""

import contextlib
import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tumorchain_jax.core.downloads import cache_folder
from tumorchain_jax.core.files import atomic_file
from tumorchain_jax.scan.volume import Volume

LIMIT = 2 * 1024**3


def segmentation_folder() -> Path:
    """Return the folder of this user's cached label maps."""
    return cache_folder() / "segmentations"


def scan_hash(scan: Volume) -> str:
    """Return the SHA-256 of a scan's voxels and its affine."""
    digest = hashlib.sha256(repr(scan.shape).encode())
    digest.update(scan.affine.astype(np.float64).tobytes())
    for plane in scan.voxels.T:
        digest.update(plane.astype(np.float32).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SegmentationCache:
    """A folder of label maps; the least recently used are deleted beyond a limit.

    A file that cannot be read counts as absent, and one that cannot be written is skipped: a cache
    never fails a run.

    Attributes:
        limit: bytes of all files together.
    """

    folder: Path = field(default_factory=segmentation_folder)
    limit: int = LIMIT

    def get(self, key: str, shape: tuple[int, int, int]) -> np.ndarray | None:
        """Return the uint8 labels cached under `key`; None if there are none of this shape."""
        path = self._path(key)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                labels = file["labels"]
            os.utime(path)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
            return None
        return labels if labels.dtype == np.uint8 and labels.shape == shape else None

    def put(self, key: str, labels: np.ndarray) -> None:
        """Cache uint8 labels; the file appears whole."""
        with contextlib.suppress(OSError):
            with atomic_file(self._path(key)) as file:
                np.savez_compressed(file, labels=labels)
            self._make_room()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _make_room(self) -> None:
        files = [(path.stat(), path) for path in self.folder.glob("[!.]*.npz")]
        size = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if size <= self.limit:
                return
            path.unlink(missing_ok=True)
            size -= stat.st_size
