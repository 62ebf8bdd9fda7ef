"""`Volume`: voxels and their place in the patient, the one geometry type."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Volume:
    """A 3D image and its place in the patient.

    Attributes:
        voxels: `[I, J, K]`; HU (float32) for a CT, organ ids (integer) for a label map.
        affine: float64 `[4, 4]`; voxel index (i, j, k, 1) -> millimetres in the NIfTI world
            frame RAS+: x grows to the patient's Right, y to Anterior, z to Superior.
        source: file or other origin, for messages.
        warnings: what was odd about the file, one line each.
    """

    voxels: np.ndarray
    affine: np.ndarray
    source: str = "array"
    warnings: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of voxels along i, j, k."""
        i, j, k = self.voxels.shape
        return i, j, k

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres between voxel centres along i, j, k."""
        i, j, k = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(i), float(j), float(k)
