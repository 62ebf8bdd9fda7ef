"""One optimizer step as one compiled program."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.training.state import Metrics, Step, TrainState
from tumorchain_jax.training.tumorchain.loss import (
    Batch,
    Sums,
    hybrid_loss,
    loss_sums,
    split,
    totals,
)


def make_step(
    model: TumorChain,
    optimizer: optax.GradientTransformation,
    alpha: float,
    accumulation: int,
    logits_chunks: int = 1,
    shardings: tuple[Any, Any] | None = None,
) -> Step:
    """The jitted update; the state it is given is consumed.

    The gradient of a batch does not depend on `accumulation`, into how many parts it is cut: the
    means of Eq. 8 are over the whole batch.

    Args:
        logits_chunks: see `loss_sums`.
        shardings: of the state and of the batch, on a mesh.
    """

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        tokens, organs = totals(batch)

        def loss(trained: dict, part: Batch) -> tuple[Float[Array, ""], Sums]:
            sums = loss_sums(model, unflatten(state.frozen | trained), part, logits_chunks)
            return hybrid_loss(sums, tokens, organs, alpha), sums

        def accumulate(carry: Any, part: Batch) -> tuple[Any, None]:
            (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(state.trained, part)
            return jax.tree.map(jnp.add, carry, (gradient, sums)), None

        if accumulation == 1:
            (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(state.trained, batch)
        else:
            zeros = (jax.tree.map(jnp.zeros_like, state.trained), Sums(*[jnp.zeros(())] * 6))
            (gradient, sums), _ = jax.lax.scan(accumulate, zeros, split(batch, accumulation))

        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        metrics = {
            "loss": hybrid_loss(sums, tokens, organs, alpha),
            "text_loss": sums.token_loss / jnp.maximum(tokens, 1),
            "token_accuracy": sums.token_hits / jnp.maximum(tokens, 1),
            "organ_loss": sums.organ_loss / jnp.maximum(organs, 1),
            "organ_accuracy": sums.organ_hits / jnp.maximum(organs, 1),
            "gradient_norm": optax.tree.norm(gradient),
            "tokens": jnp.sum(batch.segment_ids >= 0).astype(jnp.float32),  # text and visual
        }
        new_state = state._replace(
            step=state.step + 1,
            trained=optax.apply_updates(state.trained, updates),
            optimizer=new_optimizer,
        )
        return new_state, metrics

    if shardings is None:
        return jax.jit(update, donate_argnums=0)
    of_state, _ = shardings
    out = (of_state, None)
    return jax.jit(update, donate_argnums=0, in_shardings=shardings, out_shardings=out)
