"""Augment pictures on the device: mirror, turn, stretch, shift, and change brightness.

Pictures are mirrored left to right alone, for shadows fall down.

Shape letters: B pictures, S side.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from ml_collections import ConfigDict


def augment(key: Array, images: Float[Array, "B S S"], config: ConfigDict) -> Float[Array, "B S S"]:
    """Change each picture by a draw of its own.

    Args:
        images: grey values from 0 to 1; so are the new ones.
        config: `flip`: mirror half of them; `turn` in radians, `stretch`, `shift` (of the side),
            `gain` and `gamma` say how far to go either way at most.
    """
    return jax.vmap(lambda key, image: _one(key, image, config))(
        jax.random.split(key, len(images)), images
    )


def _one(key: Array, image: Float[Array, "S S"], config: ConfigDict) -> Float[Array, "S S"]:
    of_flip, of_turn, of_stretch, of_shift, of_gain, of_gamma = jax.random.split(key, 6)

    def draw(key: Array, most: float, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.uniform(key, shape, minval=-most, maxval=most)

    if config.flip:
        image = jnp.where(jax.random.bernoulli(of_flip), image[:, ::-1], image)
    if config.turn or config.stretch or config.shift:
        angle, side = draw(of_turn, config.turn), len(image)
        scales = 1 + draw(of_stretch, config.stretch, (2,))
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        centre = (side - 1) / 2
        grid = jnp.stack(jnp.mgrid[:side, :side], axis=-1) - centre
        turned = grid @ jnp.array([[cos, -sin], [sin, cos]]) * scales
        at = turned + centre + side * draw(of_shift, config.shift, (2,))
        image = jax.scipy.ndimage.map_coordinates(image, list(jnp.moveaxis(at, -1, 0)), order=1)
    if config.gamma:
        image = jnp.clip(image, 1e-6, 1) ** jnp.exp(draw(of_gamma, config.gamma))
    if config.gain:
        image = image * jnp.exp(draw(of_gain, config.gain))
    return jnp.clip(image, 0, 1)
