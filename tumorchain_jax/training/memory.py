"""What a training step needs of memory at the least, compared before it starts with what there is.

A lower bound from shapes alone: a training that fits is never refused, and one that takes far more
than the machine has ends in one line, not in the operating system killing the process.

    tumorchain compile      gives the compiler's exact number for a TPU or GPU
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.segmentation.memory import GIB, free_bytes
from tumorchain_jax.training.program import Program


def check_memory(config: ConfigDict, program: Program, mesh: Mesh) -> None:
    """Refuse a step that cannot fit the devices of this process.

    Raises:
        InputError: it needs more than is free.
    """
    needed = step_bytes(config, program, mesh)
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        # All local devices share the host's memory.
        needed *= len(mesh.local_devices)
        limit, where = free_bytes(), "this machine"
    else:
        limit, where = (device.memory_stats() or {}).get("bytes_limit", 0), device.device_kind
        if not limit:
            return  # a device that does not report its memory is not checked
    if needed > limit:
        found = f"a step of at least {needed / GIB:.1f} GiB"
        expected = f"at most the {limit / GIB:.1f} GiB free on {where}"
        hint = "lower data.length or micro_batch_size, raise logits_chunks, or add devices"
        raise InputError("config", "memory", found, expected, hint)


def step_bytes(config: ConfigDict, program: Program, mesh: Mesh) -> int:
    """Bytes that a step takes on each device at the least: state, batch, and activations.

    Of the activations it counts what the backward pass needs of the decoder: each layer's input,
    and, with XLA's attention kernel, the attention weights of each layer (of one, with remat); or
    one chunk of logits where that is more than the weights of a layer.
    """
    decoder, length = config.model.decoder, config.data.length
    rows = config.batch_size // (mesh.shape["data"] * mesh.shape["fsdp"])
    rows = min(rows, config.micro_batch_size)
    parts = mesh.shape["tensor"] * mesh.shape["sequence"]
    item = np.dtype(jax.numpy.dtype(config.model.dtype)).itemsize
    inputs = decoder.num_hidden_layers * rows * length * decoder.hidden_size * item
    logits = 4 * rows * (length // config.logits_chunks) * decoder.vocab_size
    weights = rows * decoder.num_attention_heads * length**2 * item * (config.attention == "xla")
    saved = inputs + (decoder.num_hidden_layers - 1) * weights * (config.remat == "none")
    fixed = _local_bytes(jax.tree.leaves((program.state, program.batch)))
    return fixed + (saved + max(logits, weights)) // parts


def _local_bytes(leaves: Iterable[Any]) -> int:
    """Bytes of arrays on each device."""
    return sum(prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
