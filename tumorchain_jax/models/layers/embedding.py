"""Look up rows of an embedding table that is sharded over devices.

Shape letters: B batch, T positions of a row, V vocabulary, K embedding.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


def look_up(table: Float[Array, "V K"], tokens: Int[Array, "B T"]) -> Float[Array, "B T K"]:
    """Token ids -> embeddings.

    On a mesh each device looks up its columns for the scans of all, and then gives away scans for
    columns: what is sent are embeddings. Left to itself XLA sends the table to every device, and
    adds up a whole gradient of it on each.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return jnp.take(table, tokens, axis=0)
    of_table: Any = nn.logical_to_mesh_axes(("vocab", "embed"))
    of_tokens: Any = nn.logical_to_mesh_axes(("batch", "length"))
    vocab, embed = (axes or () for axes in of_table)
    return jax.shard_map(
        partial(_of_device, vocab=vocab, embed=embed),
        in_specs=(of_table, of_tokens),
        out_specs=of_tokens,
    )(table, tokens)


def _of_device(table: Array, tokens: Array, vocab: Any, embed: Any) -> Array:
    tokens = lax.all_gather(tokens, embed, axis=0, tiled=True)
    own = tokens - lax.axis_index(vocab) * table.shape[0]
    is_own = (own >= 0) & (own < table.shape[0])
    found = jnp.take(table, jnp.where(is_own, own, 0), axis=0)
    found = lax.psum(jnp.where(is_own[:, :, None], found, 0), vocab)
    return lax.all_to_all(found, embed, split_axis=0, concat_axis=2, tiled=True)
