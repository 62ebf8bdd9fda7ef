"""Attention: which positions see which, and by which kernel.

Shape letters: B batch, T positions of a row, S cache slots, H heads, G of these for keys and
values, R = H / G, E head size.
"""

import math
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.core.errors import InputError

ATTENTION_CHUNK, ATTENTION_CHUNKS = 256, 4
"""Queries of a whole row attend in chunks, to no key behind the last of them. A chunk has at least
so many, and a row at most so many chunks: each is a program of its own, that must be compiled."""
HIDDEN = -1e30
"""Added to the score of what may not be seen."""
CACHE_PARTS = 6
"""Lengths of a cache that attention is compiled for on a CPU."""
Kernel = Literal["xla", "splash", "cudnn"]
"""xla: on any device; splash: a TPU's, by Pallas; cudnn: an NVIDIA GPU's, in bfloat16."""
KERNELS = get_args(Kernel)
PLATFORMS = {"splash": ("tpu",), "cudnn": ("gpu", "cuda")}
"""What a kernel runs on, where it does not run on all."""
SPLASH_BLOCK = 512
"""Of queries and of keys, in the TPU's kernel."""


class Packing(NamedTuple):
    """Which of several questions each position of a row belongs to.

    The questions share a prefix and see nothing of one another, so that each is answered as in a
    row of its own.

    Attributes:
        positions: the position each would have in a row of its own.
        segment_ids: 0 for the prefix, which comes first; another number for each question, one
            after the other; and one more for the pads at the end.
    """

    positions: Int[Array, "B T"]
    segment_ids: Int[Array, "B T"]

    def mask(self) -> Bool[Array, "B 1 T T"]:
        """Whether a position (row) sees another (column): earlier, its own or the prefix's."""
        segment_ids = self.segment_ids
        same_segment = (segment_ids[:, None, :] == 0) | (
            segment_ids[:, None, :] == segment_ids[:, :, None]
        )
        return jnp.tril(same_segment)[:, None]


def one_sequence(batch: int, length: int) -> Packing:
    """Rows of one sequence each: all of it is prefix."""
    shape = (batch, length)
    return Packing(jnp.broadcast_to(jnp.arange(length), shape), jnp.zeros(shape, jnp.int32))


def attend(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B T G E"],
    v: Float[Array, "B T G E"],
    mask: Bool[Array, "B 1 T T"],
    kernel: Kernel,
) -> Float[Array, "B T H E"]:
    """Attention of whole rows to themselves, under a mask that hides the future.

    Raises:
        InputError: the kernel cannot be had for these shapes.
    """
    if kernel == "xla":
        return causal_attention(q, k, v, mask)
    if kernel == "cudnn":
        return jax.nn.dot_product_attention(q, k, v, mask=mask, implementation="cudnn")
    return _splash_on_mesh(q, k, v, mask)


def causal_attention(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B T G E"],
    v: Float[Array, "B T G E"],
    mask: Bool[Array, "B 1 T T"],
) -> Float[Array, "B T H E"]:
    """XLA's own, of which most of the hidden future is not even computed."""
    chunk = max(ATTENTION_CHUNK, -(-q.shape[1] // ATTENTION_CHUNKS))
    pieces = []
    for start in range(0, q.shape[1], chunk):
        stop = start + chunk
        past = mask[:, :, start:stop, :stop]
        pieces.append(masked_attention(q[:, start:stop], k[:, :stop], v[:, :stop], past))
    return jnp.concatenate(pieces, axis=1)


def masked_attention(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B S G E"],
    v: Float[Array, "B S G E"],
    mask: Bool[Array, "#B 1 #T S"],
) -> Float[Array, "B T H E"]:
    """Attention where the mask allows; softmax in float32."""
    return biased_attention(q, k, v, jnp.where(mask, 0.0, HIDDEN))


def biased_attention(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B S G E"],
    v: Float[Array, "B S G E"],
    bias: Float[Array, "#B #H #T #S"],
) -> Float[Array, "B T H E"]:
    """Attention with a bias added to the scaled scores; softmax in float32.

    The queries that share a key head lie one behind the other, so that all products are plain ones
    of matrices, forward and backward, and the sum is divided by last, when there is less to
    divide: on a CPU `jax.nn.dot_product_attention` takes nearly twice as long.
    """
    B, T, H, E = q.shape
    G = k.shape[2]
    apart, together = (B, G, H // G, T, -1), (B, G, H // G * T, -1)
    q = jnp.moveaxis((q * E**-0.5).reshape(B, T, G, H // G, E), 1, 3).reshape(together)
    k, v = jnp.moveaxis(k, 1, 2), jnp.moveaxis(v, 1, 2)
    scores = jnp.einsum("BGNE,BGSE->BGNS", q, k, preferred_element_type=jnp.float32)
    b, h, *rest = bias.shape
    added = bias.reshape(b, *((1, 1) if h == 1 else (G, H // G)), *rest)
    scores = (scores.reshape(apart) + added).reshape(together)
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True)))
    values = jnp.einsum(
        "BGNS,BGSE->BGNE", weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    values = (values / weights.sum(axis=-1, keepdims=True)).astype(v.dtype)
    return jnp.moveaxis(values.reshape(apart), 3, 1).reshape(B, T, H, E)


def _splash_on_mesh(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B T G E"],
    v: Float[Array, "B T G E"],
    mask: Bool[Array, "B 1 T T"],
) -> Float[Array, "B T H E"]:
    """Run the kernel on each device's own rows and heads: XLA cannot partition a Pallas kernel."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return splash_attention(q, k, v, mask)
    cut: Any = nn.logical_to_mesh_axes(("batch", None, "attention_heads", None))
    cuts = [mesh.shape[axis] for axis in cut[2] or ()]
    if k.shape[2] % math.prod(cuts):
        expected = f"at most {k.shape[2]} shares of the heads, which divide them"
        found = f"splash with {math.prod(cuts)}"
        raise InputError("config", "attention", found, expected, "choose xla, or another mesh")
    whole = jax.sharding.PartitionSpec(cut[0])
    return jax.shard_map(
        splash_attention, in_specs=(cut, cut, cut, whole), out_specs=cut, check_vma=False
    )(q, k, v, mask)


def splash_attention(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B T G E"],
    v: Float[Array, "B T G E"],
    mask: Bool[Array, "B 1 T T"],
    interpret: bool = False,
) -> Float[Array, "B T H E"]:
    """The Pallas kernel of JAX; blocks that the mask hides whole are skipped.

    Args:
        interpret: run it without a TPU, slowly.

    Raises:
        InputError: T is no multiple of 128.
    """
    # A large import, for those alone who have the kernel.
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    length = q.shape[1]
    block = math.gcd(length, SPLASH_BLOCK)
    if block % 128:
        expected = "a multiple of 128 with attention splash"
        raise InputError("config", "data.length", str(length), expected, "change it")
    sizes: Any = dict.fromkeys(("block_q", "block_kv", "block_q_dkv", "block_kv_dkv"), block)
    blocks = splash.BlockSizes(**sizes, use_fused_bwd_kernel=True)
    scale = q.shape[-1] ** -0.5

    def one_row(
        q: Float[Array, "H T E"],
        k: Float[Array, "G T E"],
        v: Float[Array, "G T E"],
        mask: Bool[Array, "1 T T"],
    ) -> Float[Array, "H T E"]:
        kernel = splash.make_splash_mha_single_device(mask, block_sizes=blocks, interpret=interpret)
        # JAX asks whether the mask is dynamic, of an array that it made of its own answer.
        for name in ("fwd_mask_info", "dkv_mask_info"):
            info = getattr(kernel, name)._replace(is_dynamic_mask=True)
            setattr(kernel, name, info)
        return kernel(q, k, v)

    q = (q.astype(jnp.float32) * scale).astype(q.dtype)
    q, k, v = (jnp.moveaxis(x, 2, 1) for x in (q, k, v))
    return jnp.moveaxis(jax.vmap(one_row)(q, k, v, mask), 1, 2)


def cached_attention(
    q: Float[Array, "B T H E"],
    k: Float[Array, "B S G E"],
    v: Float[Array, "B S G E"],
    mask: Bool[Array, "B 1 T S"],
) -> Float[Array, "B T H E"]:
    """Attention to a cache that fills from its start.

    On a CPU slots beyond the last used are not read: answers are mostly shorter than the cache has
    room for, and on nano's questions it answers twice as many. An accelerator reads its weights
    for longer than its cache, and its compilers take minutes for each further length.
    """
    return jax.lax.platform_dependent(
        q, k, v, mask, cpu=_attention_to_used, default=_attention_to_all
    )


def _attention_to_all(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return jax.nn.dot_product_attention(q, k, v, mask=mask)


def _attention_to_used(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Of the cache's parts as many as any row has begun."""
    slots = k.shape[1]
    ends = [-(-slots * part // CACHE_PARTS) for part in range(1, CACHE_PARTS + 1)]

    def attend_to(end: int, q: Array, k: Array, v: Array, mask: Array) -> Array:
        return _attention_to_all(q, k[:, :end], v[:, :end], mask[..., :end])

    last = jnp.max(jnp.where(mask, jnp.arange(1, slots + 1), 0))
    part = jnp.searchsorted(jnp.asarray(ends), last)
    return jax.lax.switch(part, [partial(attend_to, end) for end in ends], q, k, v, mask)
