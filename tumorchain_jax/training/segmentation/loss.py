"""nnU-Net's loss (nnunetv2/training/loss/compound_losses.py, DC_and_CE_loss): Dice and
cross-entropy, one to one.

Shape letters: B patches, D H W voxels, V classes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

SMOOTH = 1e-5


def segmentation_loss(
    logits: Float[Array, "B D H W V"], labels: Integer[Array, "B D H W"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Cross-entropy minus the mean soft Dice over patches and foreground classes; and metrics.

    A class absent from a patch has a Dice near 0 there unless its predicted shares are near 0 too.
    """
    truth = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    log_shares = jax.nn.log_softmax(logits)
    cross_entropy = -jnp.sum(truth * log_shares, axis=-1).mean()
    dice = soft_dice(jnp.exp(log_shares), truth)[:, 1:]
    present = truth.any(axis=(1, 2, 3))[:, 1:]
    metrics = {
        "loss": cross_entropy - dice.mean(),
        "cross_entropy": cross_entropy,
        "dice": jnp.sum(dice * present) / jnp.maximum(present.sum(), 1),
    }
    return metrics["loss"], metrics


def soft_dice(
    shares: Float[Array, "B D H W V"], truth: Float[Array, "B D H W V"]
) -> Float[Array, "B V"]:
    """Dice of each class of each patch, with shares for voxels."""
    voxels = (1, 2, 3)
    both = jnp.sum(shares * truth, voxels)
    either = jnp.sum(shares, voxels) + jnp.sum(truth, voxels)
    return (2 * both + SMOOTH) / jnp.maximum(either + SMOOTH, 1e-8)
