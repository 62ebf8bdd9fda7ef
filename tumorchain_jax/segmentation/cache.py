"""Label maps kept between runs: the same scan and the same weights are not run twice.

A file is named by a hash of both, and holds labels and nothing else of the patient.
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
from tumorchain_jax.scan.volume import Volume

LIMIT = 2 * 1024**3


def segmentation_folder() -> Path:
    """Where this user's label maps are kept."""
    return cache_folder() / "segmentations"


def scan_hash(scan: Volume) -> str:
    """SHA-256 of a scan's voxels and of where they lie."""
    digest = hashlib.sha256(repr(scan.shape).encode())
    digest.update(scan.affine.astype(np.float64).tobytes())
    for plane in scan.voxels.T:
        digest.update(plane.astype(np.float32).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SegmentationCache:
    """A folder of label maps; those that were used longest ago make room.

    What cannot be read is taken for absent, and what cannot be written is not kept: a cache never
    fails a run.

    Attributes:
        limit: bytes of all files together.
    """

    folder: Path = field(default_factory=segmentation_folder)
    limit: int = LIMIT

    def get(self, key: str, shape: tuple[int, int, int]) -> np.ndarray | None:
        """The uint8 labels kept under `key`, None when there are none of this shape."""
        path = self._path(key)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                labels = file["labels"]
            os.utime(path)
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
            return None
        return labels if labels.dtype == np.uint8 and labels.shape == shape else None

    def put(self, key: str, labels: np.ndarray) -> None:
        """Keep uint8 labels; the file appears whole."""
        path = self._path(key)
        part = path.with_name(f".{key}.{os.getpid()}.npz")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(part, labels=labels)
            os.replace(part, path)
            self._make_room()
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()

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
