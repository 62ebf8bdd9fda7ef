"""Augment pictures on the device: mirror, turn, zoom, stretch, shift, and change brightness.

Pictures are mirrored left to right alone, for shadows fall down.

Shape letters: B pictures, L layers (the picture, then masks), S side.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from ml_collections import ConfigDict


def augment(
    key: Array, images: Float[Array, "B L S S"], config: ConfigDict
) -> Float[Array, "B L S S"]:
    """Change each picture by a draw of its own, and move its mask along.

    Args:
        images: grey values from 0 to 1; so are the new ones. After the first layer come masks, if
            any: they are moved, and keep their values.
        config: `flip`: mirror half of them; `turn` in radians, `zoom`, `stretch`, `shift` (of the
            side), `gain` and `gamma` say how far to go either way at most.
    """
    return jax.vmap(lambda key, layers: _one(key, layers, config))(
        jax.random.split(key, len(images)), images
    )


def _one(key: Array, layers: Float[Array, "L S S"], config: ConfigDict) -> Float[Array, "L S S"]:
    of_flip, of_turn, of_zoom, of_stretch, of_shift, of_gain, of_gamma = jax.random.split(key, 7)

    def draw(key: Array, most: float, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.uniform(key, shape, minval=-most, maxval=most)

    if config.flip:
        layers = jnp.where(jax.random.bernoulli(of_flip), layers[:, :, ::-1], layers)
    if config.turn or config.zoom or config.stretch or config.shift:
        angle, side = draw(of_turn, config.turn), layers.shape[1]
        scales = jnp.exp(draw(of_zoom, config.zoom)) * (1 + draw(of_stretch, config.stretch, (2,)))
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        centre = (side - 1) / 2
        grid = jnp.stack(jnp.mgrid[:side, :side], axis=-1) - centre
        turned = grid @ jnp.array([[cos, -sin], [sin, cos]]) * scales
        at = turned + centre + side * draw(of_shift, config.shift, (2,))
        rows, columns = jnp.moveaxis(at, -1, 0)
        layers = jnp.stack(
            [jax.scipy.ndimage.map_coordinates(each, [rows, columns], order=1) for each in layers]
        )
    image, masks = layers[0], layers[1:]
    if config.gamma:
        image = jnp.clip(image, 1e-6, 1) ** jnp.exp(draw(of_gamma, config.gamma))
    if config.gain:
        image = image * jnp.exp(draw(of_gain, config.gain))
    return jnp.concatenate([jnp.clip(image, 0, 1)[None], masks])
