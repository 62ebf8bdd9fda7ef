"""Crops of a scan around organs, which the encoder reads at a finer spacing than the whole scan.

Shape letters: B scans, C crops, D H W voxels, K embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Num

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.linear import Linear
from tumorchain_jax.models.layers.logical_axes import logical

WORLD = 7
"""Numbers that locate a crop: spacing along D, H, W in mm; its centre in the scan along D, H, W
from -1 to 1; whether there is a crop, 1 or 0."""
REFERENCE_MM = 3.0


@dataclass(frozen=True)
class CropConfig:
    """Regions of the body that are cut out of a scan, and how finely.

    Attributes:
        regions: a crop each: an organ by its name in the paper's Table 10, or `lungs`.
        spacing_mm: the finest spacing of a crop; a region that does not fit into the encoder's
            image at it gets a coarser one. 0: the finest is the scan's own spacing.
        margin_mm: around a region's mask, which makes room for its regional lymph nodes.
        candidates: at most this many cells of an organ are ranked by `roi_rank: evidence`.
        candidate_margin_mm: cells this near to an organ's mask are among them.

    Raises:
        InputError: there are no regions, one twice, or a number is out of range.
    """

    regions: tuple[str, ...] = (
        "esophagus",
        "stomach",
        "liver",
        "pancreas",
        "colorectum",
        "lungs",
    )
    spacing_mm: float = 0.0
    margin_mm: float = 20.0
    candidates: int = 512
    candidate_margin_mm: float = 20.0

    def __post_init__(self) -> None:
        if not self.regions or len({*self.regions}) != len(self.regions):
            self._refuse("regions", "one or more different names")
        for name in ("spacing_mm", "margin_mm", "candidate_margin_mm"):
            if not 0 <= getattr(self, name) <= 1000:
                self._refuse(name, "0 to 1000 mm")
        if self.candidates < 1:
            self._refuse("candidates", "1 or more")

    def _refuse(self, name: str, expected: str) -> None:
        found = str(getattr(self, name))
        raise InputError("config", f"model.crop.{name}", found, expected, "change it")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CropConfig":
        """The inverse of `dataclasses.asdict`; lists from JSON become tuples."""
        return cls(**{**values, "regions": tuple(values.get("regions", cls.regions))})

    def geometry(self) -> dict[str, Any]:
        """What decides the voxels of the crops, as plain values for a data set's manifest."""
        sizes = {"spacing_mm": self.spacing_mm, "margin_mm": self.margin_mm}
        return {"regions": list(self.regions), **sizes}


class Crops(NamedTuple):
    """The crops of a batch of scans.

    Attributes:
        images: voxels; any value where there is no crop.
        world: see `WORLD`.
    """

    images: Num[Array, "B C D H W"]
    world: Float[Array, "B C 7"]


class CropEmbedding(nn.Module):
    """What is added to all tokens of a crop: which region it shows, how finely, and where.

    Both parameters start at zero, so that an untrained embedding changes no token.
    """

    features: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, world: Float[Array, "B C 7"]) -> Float[Array, "B C K"]:
        """One vector for each crop."""
        zeros = nn.initializers.zeros
        shape = (world.shape[1], self.features)
        region = self.param("region", logical(zeros, "crops", "embed"), shape)
        spacing, centre = jnp.log(world[..., :2] / REFERENCE_MM), world[..., 3:6]
        place = jnp.concatenate([spacing, centre], axis=-1)
        axes = ("place", "embed")
        of_place = Linear(self.features, axes, False, None, self.dtype, zeros, name="place")(place)
        return region.astype(self.dtype) + of_place
