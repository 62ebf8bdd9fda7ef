"""The TPU's kernel, interpreted, on eight virtual devices; run by test_attention.py."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers import attention
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh

attention.splash_attention = partial(attention.splash_attention, interpret=True)
rng = np.random.default_rng(0)
q, k, v = (jnp.asarray(rng.normal(size=(8, 128, heads, 128)), jnp.float32) for heads in (4, 2, 2))
mask = attention.one_sequence(8, 128).mask()
expected = attention.causal_attention(q, k, v, mask)
for sizes in ({"data": 8}, {"fsdp": 4, "tensor": 2}, {"data": 4, "sequence": 2}, {"tensor": 8}):
    with on_mesh(make_mesh(sizes)):
        try:
            found = jax.jit(partial(attention.attend, kernel="splash"))(q, k, v, mask)
        except InputError as error:
            print("refused" if "expected at most 2 shares of the heads" in str(error) else error)
            continue
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    print("same")
