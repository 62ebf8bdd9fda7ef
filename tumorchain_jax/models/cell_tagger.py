"""What teaches a small encoder to see before it learns to speak: tags for cells shown alone.

M3D's encoder comes pretrained on 120,000 image-text pairs (M3D-CLIP). A model as small as nano, on
a few thousand digital patients, instead learns from their label maps: which organ fills a cell, and
which organs' lesions are in it. A cell alone is a volume of one patch, so nearly all time goes to
the cells that matter; the encoder's attention meets the other cells later, in the whole model. The
heads are dropped afterwards. Ours, not the paper's.

Shape letters: B volumes, N cells of each, K cells from anywhere, O organ labels, S organs that may
be ill.
"""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, Float, Int

from tumorchain_jax.models.linear import Linear
from tumorchain_jax.models.tumorchain import run
from tumorchain_jax.models.vit3d.model import ViT3D, ViT3DConfig
from tumorchain_jax.path_rules import unflatten

POSITIONS = "encoder/position_embed"


class CellTagger(nn.Module):
    """The encoder and two linear heads on each cell.

    Attributes:
        labels: how many organ labels there are, the background included.
        sites: how many organs may be ill.
    """

    config: ViT3DConfig
    labels: int
    sites: int

    @nn.compact
    def __call__(
        self, volume: Float[Array, "B D H W"]
    ) -> tuple[Float[Array, "B N O"], Float[Array, "B N S"]]:
        """Logits of the organ that fills each cell, and of the organs whose lesions it holds."""
        cells = ViT3D(self.config, name="encoder")(volume)
        axes = ("embed", "classes")
        organ = Linear(self.labels, axes, use_bias=True, name="organ")(cells)
        lesion = Linear(self.sites, axes, use_bias=True, name="lesion")(cells)
        return organ, lesion


def tag_alone(
    model: CellTagger,
    params: dict[str, Any],
    cells: Float[Array, "K p q r"],
    numbers: Int[Array, " K"],
) -> tuple[Float[Array, "K O"], Float[Array, "K S"]]:
    """What `model` says of cells that see no other cell.

    Args:
        params: of `model`, by path.
        cells: their voxels, intensities in [0, 1].
        numbers: which cell of the token grid each is; its position embedding goes by that.
    """
    alone = replace(model, config=replace(model.config, image=model.config.patch))

    def tag(cell: Array, position: Array) -> tuple[Array, Array]:
        own = unflatten(params | {POSITIONS: position[None, None]})
        organ, lesion = run(alone, own, cell[None])
        return organ[0, 0], lesion[0, 0]

    return jax.vmap(tag)(cells, params[POSITIONS][0, numbers])
