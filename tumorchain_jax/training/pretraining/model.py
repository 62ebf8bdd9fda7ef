"""Vision-encoder pretraining with auxiliary patch labels.

M3D's encoder comes pretrained on 120,000 image-text pairs (M3D-CLIP). A model as small as nano, on
a few thousand digital patients, instead learns from their label maps what each patch holds. First
each patch is a volume by itself, so that nearly all time goes to the patches that matter; then come
whole scans, in which patches attend to each other. The heads are dropped afterwards. This is ours,
not the paper's.

Shape letters: B volumes, N patches of each, K patches from anywhere.
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
from tumorchain_jax.models.tumorchain.organ_classifier import OrganClassifier
from tumorchain_jax.models.tumorchain.projector import Projector
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig

POSITIONS = "encoder/position_embed"
ABNORMAL = "abnormal"
"""Label of a patch with any tumour, metastasis or pathological node, of models with crops."""
PatchLogits = dict[str, Array]
"""Logits by label, each `[..., values]`."""


def patch_encoder(config: TumorChainConfig) -> ViT3DConfig:
    """The encoder of a model, which must be one that cuts volumes into patches.

    Raises:
        InputError: it is of another family.
    """
    if isinstance(config.encoder, ViT3DConfig):
        return config.encoder
    found = type(config.encoder).__name__
    hint = "set config.pretrain.patch_stage.steps=0, and init to its pretrained weights"
    raise InputError("config", "model.encoder", found, "ViT3DConfig, for patch labels", hint)


class PatchClassifier(nn.Module):
    """Encoder and projector, and a linear head for each label on each patch.

    So the projector's output, which the decoder will read, linearly encodes what a patch holds. The
    head of `ABNORMAL` is the organ classifier's own layer, which later ranks the cells of an organ.

    Attributes:
        labels: label -> its number of values.
    """

    config: TumorChainConfig
    labels: Mapping[str, int] = FrozenDict()

    @nn.compact
    def __call__(self, volume: Float[Array, "B D H W"]) -> PatchLogits:
        """Logits `[B, N, values]` of each label."""
        config = self.config
        patches = ViT3D(patch_encoder(config), name="encoder")(volume)
        patches = Projector(config.projector, config.decoder.hidden_size, name="projector")(patches)
        axes = ("embed", "classes")

        def head(label: str, values: int) -> Array:
            if label == ABNORMAL:
                return OrganClassifier(name="organ_classifier").classify_tokens(patches)
            return Linear(values, axes, use_bias=True, name=label)(patches)

        return {label: head(label, values) for label, values in self.labels.items()}


def classify_patches(
    model: PatchClassifier,
    params: dict[str, Any],
    patches: Float[Array, "K p q r"],
    patch_index: Int[Array, " K"],
) -> PatchLogits:
    """Logits of patches that attend to no other patch, `[K, values]` for each label.

    Args:
        params: of `model`, by path.
        patches: their voxels, intensities in [0, 1].
        patch_index: raster index of each in the token grid, which chooses its position embedding.
    """
    encoder = patch_encoder(model.config)
    encoder = replace(encoder, image=encoder.patch)
    alone = replace(model, config=replace(model.config, encoder=encoder, global_pool=1))

    def label(patch: Array, position: Array) -> PatchLogits:
        own = unflatten(params | {POSITIONS: position[None, None]})
        return {name: logits[0, 0] for name, logits in run(alone, own, patch[None]).items()}

    return jax.vmap(label)(patches, params[POSITIONS][0, patch_index])
