"""One optimizer step of any task as one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from tumorchain_jax.training.state import Metrics, Params, Step, TrainState


@runtime_checkable
class Loss(Protocol):
    """A loss whose values and gradients over the parts of a batch add up to those of the batch."""

    def totals(self, batch: Any) -> Any:
        """What the means of the loss are taken over, such as the number of target tokens."""

    def __call__(
        self, params: Params, statistics: Params, part: Any, totals: Any, key: Array
    ) -> tuple[Float[Array, ""], Any, Params]:
        """The part's share of the batch's loss, its sums (scalars), and the new statistics.

        Args:
            params: by path; the gradient is taken of those that are trained.
            statistics: of the state, by path.
            totals: of the whole batch.
            key: another one for each step and part.
        """

    def metrics(self, sums: Any, totals: Any) -> Metrics:
        """The metrics of a batch, `loss` among them, from the sums over its parts."""


@dataclass(frozen=True)
class MeanLoss:
    """A loss, and metrics, that are means over the rows of a batch.

    Attributes:
        function: (params, statistics, batch, key) -> (metrics with `loss`, new statistics).
    """

    function: Callable[[Params, Params, Any, Array], tuple[Metrics, Params]]

    def totals(self, batch: Any) -> int:
        """The number of rows."""
        return len(jax.tree.leaves(batch)[0])

    def __call__(
        self, params: Params, statistics: Params, part: Any, totals: int, key: Array
    ) -> tuple[Float[Array, ""], Metrics, Params]:
        """See `Loss`."""
        metrics, statistics = self.function(params, statistics, part, key)
        if (rows := self.totals(part)) != totals:
            metrics = {name: value * (rows / totals) for name, value in metrics.items()}
        return metrics["loss"], metrics, statistics

    def metrics(self, sums: Metrics, totals: int) -> Metrics:
        """See `Loss`."""
        return sums


def make_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    *,
    accumulation: int = 1,
    seed: int = 0,
    shardings: tuple[Any, Any] | None = None,
) -> Step:
    """The jitted update; the state that it is given is consumed (donated).

    Args:
        accumulation: into how many parts a batch is cut, one after the other. The gradient does not
            depend on it. Statistics do: each part updates those of the part before, so that
            BatchNorm normalises by the mean of a part, over all devices.
        seed: of the keys that the loss is given; the key of a step depends on its number alone.
        shardings: of the state and of the batch, on a mesh.
    """

    def update(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        totals = loss.totals(batch)

        def share(trained: Params, statistics: Params, part: Any, key: Array) -> tuple[Array, Any]:
            value, *others = loss(state.frozen | trained, statistics, part, totals, key)
            return value, others

        differentiate = jax.grad(share, has_aux=True)

        def accumulate(carry: Any, numbered: tuple[Array, Any]) -> tuple[Any, None]:
            (so_far, statistics), (number, part) = carry, numbered
            own_key = jax.random.fold_in(key, number)
            gradient, (sums, statistics) = differentiate(state.trained, statistics, part, own_key)
            return (jax.tree.map(jnp.add, so_far, (gradient, sums)), statistics), None

        if accumulation == 1:
            gradient, (sums, statistics) = differentiate(
                state.trained, state.statistics, batch, key
            )
        else:
            parts = split(batch, accumulation)
            first = jax.tree.map(lambda leaf: leaf[0], parts)
            shapes = jax.eval_shape(share, state.trained, state.statistics, first, key)[1][0]
            zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (state.trained, shapes))
            numbered = jnp.arange(accumulation), parts
            carry, _ = jax.lax.scan(accumulate, (zeros, state.statistics), numbered)
            (gradient, sums), statistics = carry

        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        metrics = loss.metrics(sums, totals) | {"gradient_norm": optax.tree.norm(gradient)}
        new_state = TrainState(
            step=state.step + 1,
            trained=optax.apply_updates(state.trained, updates),
            frozen=state.frozen,
            optimizer=new_optimizer,
            statistics=statistics,
        )
        return new_state, metrics

    if shardings is None:
        return jax.jit(update, donate_argnums=0)
    out = (shardings[0], None)
    return jax.jit(update, donate_argnums=0, in_shardings=shardings, out_shardings=out)


def split(batch: Any, parts: int) -> Any:
    """Deal a batch into `parts` along a new leading axis: each device keeps the rows it has."""
    return jax.tree.map(
        lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )
