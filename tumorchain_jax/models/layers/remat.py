"""Activation checkpointing: which activations are saved for the backward pass.

none   all are saved: fastest, most memory
dots   outputs of matrix products are saved, all others are recomputed
full   only the input of each layer is saved
"""

from typing import Literal

import flax.linen as nn
import jax

from tumorchain_jax.core.errors import InputError

Remat = Literal["none", "dots", "full"]
POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def rematerialized(layer: type[nn.Module], remat: Remat, in_scan: bool = True) -> type[nn.Module]:
    """A layer that is computed again in the backward pass as `remat` says.

    Args:
        in_scan: it is the layer of a scan, where XLA cannot merge the second computation with the
            first, so no barrier against merging is needed.

    Raises:
        InputError: no such policy.
    """
    if remat == "none":
        return layer
    if remat not in POLICIES:
        expected = ", ".join(["none", *POLICIES])
        raise InputError("config", "remat", str(remat), expected, "use one of these")
    return nn.remat(layer, policy=POLICIES[remat], prevent_cse=not in_scan)
