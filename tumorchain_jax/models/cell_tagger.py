"""What teaches a small encoder to see before it learns to speak: a tag for every cell.

M3D's encoder comes pretrained on 120,000 image-text pairs (M3D-CLIP). A model as small as nano, on
a few thousand digital patients, instead learns from their label maps: which organ fills a cell, and
whether it holds a lesion. The head is dropped afterwards. Ours, not the paper's.
"""

import flax.linen as nn
from jaxtyping import Array, Float

from tumorchain_jax.models.linear import Linear
from tumorchain_jax.models.vit3d.model import ViT3D, ViT3DConfig


class CellTagger(nn.Module):
    """The encoder and two linear heads on each cell.

    Attributes:
        labels: how many organ labels there are, the background included.
    """

    config: ViT3DConfig
    labels: int

    @nn.compact
    def __call__(
        self, volume: Float[Array, "B D H W"]
    ) -> tuple[Float[Array, "B N O"], Float[Array, "B N"]]:
        """Logits of the organ that fills each cell, and of its holding a lesion."""
        cells = ViT3D(self.config, name="encoder")(volume)
        axes = ("embed", "classes")
        organ = Linear(self.labels, axes, use_bias=True, name="organ")(cells)
        lesion = Linear(1, axes, use_bias=True, name="lesion")(cells)
        return organ, lesion[..., 0]
