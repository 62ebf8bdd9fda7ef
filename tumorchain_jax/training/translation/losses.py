"""Losses of CycleGAN and CUT, and CycleGAN's pool of earlier pictures.

Shape letters: B images, H W pixels, C channels, P places, F features, K pictures of a pool.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from tumorchain_jax.training.state import Params

TEMPERATURE = 0.07


def least_squares(scores: Float[Array, "B h w 1"], target: float) -> Float[Array, ""]:
    """Mean squared distance from what they should be: 1 for real ones (Mao et al. 2017)."""
    return jnp.square(scores - target).mean()


def distance(one: Float[Array, "B H W C"], other: Float[Array, "B H W C"]) -> Float[Array, ""]:
    """Mean absolute difference."""
    return jnp.abs(one - other).mean()


def patch_nce(
    queries: Sequence[Float[Array, "B P F"]], keys: Sequence[Float[Array, "B P F"]]
) -> Float[Array, ""]:
    """Contrast places of a translation with those of its picture (Park et al. 2020).

    Of each place the same place of the picture is right, and the others of the same picture are
    wrong; no gradient goes to the keys. The mean over layers.
    """
    losses = []
    for query, key in zip(queries, keys, strict=True):
        key = jax.lax.stop_gradient(key)
        same = (query * key).sum(axis=-1, keepdims=True)
        others = jnp.einsum("bpf,bqf->bpq", query, key)
        others = jnp.where(jnp.eye(query.shape[1], dtype=bool), -10.0, others)
        logits = jnp.concatenate([same, others], axis=-1) / TEMPERATURE
        right = jnp.zeros(logits.shape[:-1], int)
        losses.append(optax.softmax_cross_entropy_with_integer_labels(logits, right).mean())
    return jnp.stack(losses).mean()


def places(key: Array, shapes: Sequence[tuple[int, ...]], most: int) -> list[Int[Array, " P"]]:
    """Places of each layer at random, none twice; all where there are no more than `most`."""
    drawn = []
    for own, (_, height, width, _) in zip(jax.random.split(key, len(shapes)), shapes, strict=True):
        count = height * width
        drawn.append(jax.random.permutation(own, count)[: min(most, count)])
    return drawn


def from_pool(
    key: Array, pool: Params, name: str, images: Float[Array, "B H W C"]
) -> tuple[Float[Array, "B H W C"], Params]:
    """Pictures for the discriminator: with even chances these, or earlier ones in exchange.

    While the pool is not full, a picture goes in and is given as it is.

    Args:
        pool: `NAME/pictures` of [K, H, W, C] and `NAME/filled`.
    """
    kept, filled = pool[f"{name}/pictures"], pool[f"{name}/filled"]
    size = len(kept)
    given = []
    for own, image in zip(jax.random.split(key, len(images)), images, strict=True):
        of_chance, of_place = jax.random.split(own)
        is_full = filled >= size
        exchange = is_full & jax.random.bernoulli(of_chance)
        drawn = jax.random.randint(of_place, (), 0, size)
        place = jnp.where(is_full, drawn, filled.astype(int))
        given.append(jnp.where(exchange, kept[place], image))
        stored = jnp.where(is_full & ~exchange, kept[place], image)
        kept = kept.at[place].set(stored)
        filled = jnp.minimum(filled + 1, size)
    return jnp.stack(given), {f"{name}/pictures": kept, f"{name}/filled": filled}
