"""CycleGAN's generator and discriminator (Zhu et al. 2017); CUT's projection (Park et al. 2020).

Shape letters: B images, H W pixels or cells, C channels, P places, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from tumorchain_jax.models.translation.layers import (
    INIT,
    Convolution,
    TransposedConvolution,
    instance_norm,
    reflected,
)

LEAK, PROJECTED = 0.2, 256


@dataclass(frozen=True)
class TranslationConfig:
    """Sizes; the defaults are CycleGAN's for pictures of 256 pixels, but for one channel.

    Attributes:
        width: channels of the generator's first convolution.
        blocks: 9; 6 for smaller pictures.
        discriminator_width: channels of the discriminator's first convolution.
        channels: of the pictures.
    """

    width: int = 64
    blocks: int = 9
    discriminator_width: int = 64
    channels: int = 1


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    width: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
        """Run the block."""
        y = Convolution(self.width, 3, name="conv1")(reflected(x, 1))
        y = nn.relu(instance_norm(y))
        y = Convolution(self.width, 3, name="conv2")(reflected(y, 1))
        return x + instance_norm(y)


class Generator(nn.Module):
    """Pictures of one look to pictures of another, from -1 to 1; sides are multiples of 4."""

    config: TranslationConfig

    @nn.compact
    def __call__(
        self, images: Float[Array, "B H W C"]
    ) -> tuple[Float[Array, "B H W C"], list[Float[Array, "B _ _ _"]]]:
        """Return the pictures, and what CUT compares.

        The second are five layers of the encoder: the padded picture, both halvings before they
        are normalized, and the outputs of the first and the fifth block (or the last).
        """
        config = self.config
        x = reflected(images, 3)
        layers = [x]
        x = nn.relu(instance_norm(Convolution(config.width, 7, name="first")(x)))
        for number in (1, 2):
            x = Convolution(config.width * 2**number, 3, 2, 1, name=f"down{number}")(x)
            layers.append(x)
            x = nn.relu(instance_norm(x))
        for number in range(config.blocks):
            x = Block(config.width * 4, name=f"block{number}")(x)
            if number in (0, min(4, config.blocks - 1)):
                layers.append(x)
        for number in (1, 2):
            x = TransposedConvolution(config.width * 4 // 2**number, name=f"up{number}")(x)
            x = nn.relu(instance_norm(x))
        x = Convolution(config.channels, 7, name="last")(reflected(x, 3))
        return jnp.tanh(x), layers


class Discriminator(nn.Module):
    """How real each patch of 70 pixels is (PatchGAN)."""

    config: TranslationConfig

    @nn.compact
    def __call__(self, images: Float[Array, "B H W C"]) -> Float[Array, "B h w 1"]:
        """Score the patches; 1 is real, in least squares."""
        width = self.config.discriminator_width
        x = nn.leaky_relu(Convolution(width, 4, 2, 1, name="conv0")(images), LEAK)
        for number, (factor, stride) in enumerate(((2, 2), (4, 2), (8, 1)), 1):
            x = Convolution(factor * width, 4, stride, 1, name=f"conv{number}")(x)
            x = nn.leaky_relu(instance_norm(x), LEAK)
        return Convolution(1, 4, 1, 1, name="conv4")(x)


class Projection(nn.Module):
    """Unit vectors of places of each layer, by two linear maps of its own (CUT's `F`)."""

    features: int = PROJECTED

    @nn.compact
    def __call__(
        self, layers: Sequence[Float[Array, "B _ _ _"]], places: Sequence[Int[Array, " P"]]
    ) -> list[Float[Array, "B P F"]]:
        """Project.

        Args:
            places: of each layer, numbers of cells row by row.
        """
        found = []
        for number, (layer, chosen) in enumerate(zip(layers, places, strict=True)):
            x = layer.reshape(len(layer), -1, layer.shape[-1])[:, chosen]
            for name in ("hidden", "out"):
                dense = nn.Dense(self.features, kernel_init=INIT, name=f"layer{number}_{name}")
                x = dense(x)
                x = nn.relu(x) if name == "hidden" else x
            found.append(x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-7))
        return found
