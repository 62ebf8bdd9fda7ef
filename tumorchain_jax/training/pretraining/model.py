"""What teaches a small encoder to see before it learns to speak: tags for what each cell holds.

M3D's encoder comes pretrained on 120,000 image-text pairs (M3D-CLIP). A model as small as nano, on
a few thousand digital patients, instead learns from their label maps what each cell holds. A cell
alone is a volume of one patch, so nearly all time goes to the cells that matter; the encoder's
attention meets the other cells in the lesson after that. The heads are dropped afterwards. Ours,
not the paper's.

Shape letters: B volumes, N cells of each, K cells from anywhere.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
from flax.core import FrozenDict
from jaxtyping import Array, Float, Int

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.layers.linear import Linear
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.tumorchain.projector import Projector
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig

POSITIONS = "encoder/position_embed"
Tags = dict[str, Array]
"""Logits by tag, each `[..., values]`."""


def patch_encoder(config: TumorChainConfig) -> ViT3DConfig:
    """The encoder of a model, which has to cut volumes into patches: a cell alone is one of them.

    Raises:
        InputError: it is of another family.
    """
    if isinstance(config.encoder, ViT3DConfig):
        return config.encoder
    found = type(config.encoder).__name__
    hint = "set config.pretrain.patch_stage.steps=0, and init to its pretrained weights"
    raise InputError("config", "model.encoder", found, "ViT3DConfig, for cell tags", hint)


class PatchClassifier(nn.Module):
    """Encoder and projector, and a linear head for each tag on each cell.

    What the decoder will read, the projector's output, then says in plain terms what a cell holds.

    Attributes:
        tags: tag -> how many values it has.
    """

    config: TumorChainConfig
    tags: Mapping[str, int] = FrozenDict()

    @nn.compact
    def __call__(self, volume: Float[Array, "B D H W"]) -> Tags:
        """Logits `[B, N, values]` of each tag."""
        config = self.config
        cells = ViT3D(patch_encoder(config), name="encoder")(volume)
        cells = Projector(config.projector, config.decoder.hidden_size, name="projector")(cells)
        axes = ("embed", "classes")
        return {
            tag: Linear(values, axes, use_bias=True, name=tag)(cells)
            for tag, values in self.tags.items()
        }


def classify_patches(
    model: PatchClassifier,
    params: dict[str, Any],
    cells: Float[Array, "K p q r"],
    numbers: Int[Array, " K"],
) -> Tags:
    """What `model` says of cells that see no other cell, `[K, values]` for each tag.

    Args:
        params: of `model`, by path.
        cells: their voxels, intensities in [0, 1].
        numbers: which cell of the token grid each is; its position embedding goes by that.
    """
    encoder = patch_encoder(model.config)
    encoder = replace(encoder, image=encoder.patch)
    alone = replace(model, config=replace(model.config, encoder=encoder, global_pool=1))

    def tag(cell: Array, position: Array) -> Tags:
        own = unflatten(params | {POSITIONS: position[None, None]})
        return {name: logits[0, 0] for name, logits in run(alone, own, cell[None]).items()}

    return jax.vmap(tag)(cells, params[POSITIONS][0, numbers])
