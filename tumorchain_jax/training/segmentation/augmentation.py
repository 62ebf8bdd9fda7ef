"""Augment patches on the device: rotation, scaling and intensities.

No mirroring: organs have a side, a front and an upper end.

Shape letters: B patches, D H W voxels.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer
from ml_collections import ConfigDict

Image = Float[Array, "D H W 1"]
Labels = Integer[Array, "D H W"]


def augment(
    key: Array,
    image: Float[Array, "B D H W 1"],
    labels: Integer[Array, "B D H W"],
    config: ConfigDict,
) -> tuple[Float[Array, "B D H W 1"], Integer[Array, "B D H W"]]:
    """Rotate and scale each patch and change its intensities, each with its own draw.

    Args:
        config: `turn` (radians, about each axis), `stretch`, `gain`, `offset` and `gamma` say how
            far to go either way at most, `noise` the largest deviation (of a normalised scan).
    """

    def one(key: Array, image: Image, labels: Labels) -> tuple[Image, Labels]:
        of_place, of_intensity = jax.random.split(key)
        image, labels = move(of_place, image, labels, config.turn, config.stretch)
        return change_intensity(of_intensity, image, config), labels

    return jax.vmap(one)(jax.random.split(key, len(image)), image, labels)


def move(
    key: Array, image: Image, labels: Labels, turn: float, stretch: float
) -> tuple[Image, Labels]:
    """Rotate a patch about its centre and scale it along its axes; outside it is 0."""
    of_angles, of_scales = jax.random.split(key)
    angles = jax.random.uniform(of_angles, (3,), minval=-turn, maxval=turn)
    scales = 1 + jax.random.uniform(of_scales, (3, 1), minval=-stretch, maxval=stretch)
    shape = jnp.array(labels.shape)
    centre = (shape - 1) / 2
    grid = jnp.stack(jnp.meshgrid(*map(jnp.arange, labels.shape), indexing="ij"), axis=-1)
    at = (grid - centre) @ (scales * rotation(angles)).T + centre
    coordinates = list(jnp.moveaxis(at, -1, 0))
    sample = jax.scipy.ndimage.map_coordinates
    return (
        sample(image[..., 0], coordinates, order=1)[..., None],
        sample(labels, coordinates, order=0),
    )


def rotation(angles: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The rotation about the first axis, then the second, then the third."""
    (a, b, c), (u, v, w) = jnp.cos(angles), jnp.sin(angles)
    first = jnp.array([[1, 0, 0], [0, a, -u], [0, u, a]])
    second = jnp.array([[b, 0, v], [0, 1, 0], [-v, 0, b]])
    third = jnp.array([[c, -w, 0], [w, c, 0], [0, 0, 1]])
    return third @ second @ first


def change_intensity(key: Array, image: Image, config: ConfigDict) -> Image:
    """Gamma over the patch's own range, gain, offset and noise."""
    of_gamma, of_gain, of_offset, of_deviation, of_noise = jax.random.split(key, 5)

    def draw(own: Array, reach: float) -> Float[Array, ""]:
        return jax.random.uniform(own, minval=-reach, maxval=reach)

    low, high = image.min(), image.max()
    width = jnp.maximum(high - low, 1e-6)
    image = low + width * ((image - low) / width) ** jnp.exp(draw(of_gamma, config.gamma))
    image = image * (1 + draw(of_gain, config.gain)) + draw(of_offset, config.offset)
    deviation = jax.random.uniform(of_deviation, maxval=config.noise)
    return image + deviation * jax.random.normal(of_noise, image.shape)
