"""Looking up a table that lies in parts on eight virtual devices; run by test_embedding.py."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tumorchain_jax.models.layers.embedding import look_up
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh, rows_of

VOCABULARY, SIZE = 24, 16
rng = np.random.default_rng(0)
table = rng.normal(size=(VOCABULARY, SIZE)).astype(np.float32)
tokens = rng.integers(0, VOCABULARY, (8, 4)).astype(np.int32)
weights = jnp.asarray(rng.normal(size=(8, 4, SIZE)), jnp.float32)


def weighted(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.sum(look_up(table, tokens) * weights)


found = []
for sizes in (
    {"data": 8},
    {"fsdp": 8},
    {"fsdp": 2, "tensor": 4},
    {"data": 2, "fsdp": 2, "sequence": 2},
    {"fsdp": 2, "tensor": 2, "sequence": 2},
):
    mesh = make_mesh(sizes)
    with on_mesh(mesh):
        lies = NamedSharding(mesh, PartitionSpec("tensor", "fsdp"))
        places = lies, rows_of(mesh)
        placed = jax.device_put(table, lies), jax.device_put(tokens, rows_of(mesh))
        rows = jax.jit(look_up, in_shardings=places)(*placed)
        slope = jax.jit(jax.grad(weighted), in_shardings=places, out_shardings=lies)
        compiled = slope.lower(*placed).compile().as_text()
        found.append(
            {
                "rows": np.asarray(rows).tolist(),
                "gradient": np.asarray(slope(*placed)).tolist(),
                # Of the whole table, a device must see none.
                "whole": compiled.count(f"f32[{VOCABULARY},{SIZE}]"),
            }
        )
print(json.dumps(found))
