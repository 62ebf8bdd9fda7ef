"""A ResNet with a feature pyramid (Lin et al. 2017) that predicts the lesion's mask.

The classifier sees three things: features pooled over the picture, features pooled over the
predicted lesion, and the predicted lesion's size, place and shape. No gradient of the class goes
through the predicted mask, which is learned from masks. No mask is needed to predict.

Shape letters: B images, H W pixels or cells, C channels, F features, Y X cells of the finest stage.
"""

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.image.layers import KERNEL_INIT, BatchNorm, Convolution, head
from tumorchain_jax.models.image.resnet.model import EXPANSION, trunk
from tumorchain_jax.models.layers.linear import Linear
from tumorchain_jax.models.layers.remat import Remat

MASKS, MASK = "masks", "lesion"
"""The collection that a call leaves its mask in, and its name there: logits [B, Y, X]."""
SHAPE_FEATURES = 10
SMALLEST = 1e-4
"""Variance of a lesion along an axis, in squared sides of the picture, that keeps logarithms
finite: a hundredth of the side."""


@dataclass(frozen=True)
class PyramidConfig:
    """Sizes.

    Attributes:
        blocks: of each stage, as a ResNet's.
        width: channels of the stem.
        neck: channels of the pyramid.
        channels: of the images.
        classes: 0 for no head.
    """

    blocks: tuple[int, ...] = (1, 1, 1, 1)
    width: int = 16
    neck: int = 32
    channels: int = 1
    classes: int = 2

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""
        return self.width * 2 ** (len(self.blocks) - 1) * EXPANSION + self.neck + SHAPE_FEATURES


class Pyramid(nn.Module):
    """Images in; logits and pooled features out, and the lesion's mask in `MASKS`."""

    config: PyramidConfig
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"

    @nn.compact
    def __call__(
        self, images: Float[Array, "B H W C"], train: bool = False
    ) -> tuple[Float[Array, "B K"], Float[Array, "B F"]]:
        """Return logits and pooled features; without a head the logits are the features.

        Args:
            images: normalized by the model's mean and deviation.
            train: normalize by the batch, and update the running statistics.
        """
        config = self.config
        stages = trunk(config.blocks, config.width, images, train, self.dtype, self.remat)
        x = self._lateral(len(stages), stages[-1])
        for number, stage in reversed([*enumerate(stages[:-1], start=1)]):
            shape = (*stage.shape[:3], config.neck)
            x = self._lateral(number, stage) + jax.image.resize(x, shape, "bilinear")
        x = Convolution(config.neck, 3, dtype=self.dtype, name="smooth")(x)
        x = nn.relu(BatchNorm(dtype=self.dtype, name="smooth_bn")(x, train))
        mask = Linear(1, ("embed", "classes"), True, None, self.dtype, name="mask")(x)[..., 0]
        self.sow(MASKS, MASK, mask, reduce_fn=lambda _, new: new, init_fn=lambda: None)
        inside = jax.lax.stop_gradient(nn.sigmoid(mask.astype(jnp.float32)))
        weights = inside / (inside.sum(axis=(1, 2), keepdims=True) + 1e-3)
        features = jnp.concatenate(
            [
                stages[-1].mean(axis=(1, 2)),
                (x * weights[..., None]).sum(axis=(1, 2)),
                shape_features(inside),
            ],
            axis=-1,
        ).astype(self.dtype)
        return head(config.classes, self.dtype, features), features

    def _lateral(self, number: int, stage: Float[Array, "B H W C"]) -> Float[Array, "B H W N"]:
        axes, name = ("channels", "embed"), f"lateral{number}"
        return Linear(self.config.neck, axes, True, None, self.dtype, KERNEL_INIT, name=name)(stage)


def shape_features(inside: Float[Array, "B Y X"]) -> Float[Array, "B 10"]:
    """Size, place and shape of lesions by the moments of their masks, scaled to about 1.

    In order: logarithm of the area (share of the picture); place across and down from the middle;
    logarithms of the variances across and down and of their ratio (the aspect, down over across);
    their correlation (tilt); area beside that of an ellipse with these moments; the highest
    probability; the share of uncertain cells.

    Args:
        inside: probability that a cell is of the lesion.
    """
    rows, columns = inside.shape[1:]
    total = inside.sum(axis=(1, 2)) + 1e-3
    weights = inside / total[:, None, None]
    to_right = (jnp.arange(columns) + 0.5) / columns - 0.5
    downwards = ((jnp.arange(rows) + 0.5) / rows - 0.5)[:, None]
    across, down = ((weights * axis).sum(axis=(1, 2)) for axis in (to_right, downwards))
    x, y = to_right - across[:, None, None], downwards - down[:, None, None]
    of_x, of_y = ((weights * axis**2).sum(axis=(1, 2)) + SMALLEST for axis in (x, y))
    of_both = (weights * x * y).sum(axis=(1, 2))
    area = total / (rows * columns)
    ellipse = jnp.maximum(of_x * of_y - of_both**2, SMALLEST**2)
    return jnp.stack(
        [
            jnp.log(area),
            4 * across,
            4 * down,
            jnp.log(of_x),
            jnp.log(of_y),
            2 * jnp.log(of_y / of_x),
            2 * of_both / jnp.sqrt(of_x * of_y),
            jnp.log(area) - jnp.log(ellipse) / 2,
            inside.max(axis=(1, 2)),
            4 * (inside * (1 - inside)).mean(axis=(1, 2)) / area,
        ],
        axis=-1,
    )
