"""What the backward pass reads from memory, and what it computes again.

none   every activation is kept: fastest, largest
dots   the outputs of matrix products are kept, all else is computed again
full   the input of each layer is kept
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
            first, and need not be kept from it.

    Raises:
        InputError: no such policy.
    """
    if remat == "none":
        return layer
    if remat not in POLICIES:
        expected = ", ".join(["none", *POLICIES])
        raise InputError("config", "remat", str(remat), expected, "name one of them")
    return nn.remat(layer, policy=POLICIES[remat], prevent_cse=not in_scan)
