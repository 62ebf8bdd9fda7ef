"""What the training loop needs of a task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import TrainState

HostArrays = dict[str, np.ndarray]


def _no_names(step: int) -> Sequence[str]:
    return ()


def _no_export(params: HostArrays, statistics: HostArrays) -> None:
    return


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """A model with its loss, on its data.

    Attributes:
        name: in messages.
        program: the compiled step, its abstract state and its learning rate.
        steps: up to which it is trained.
        initial: makes the state where training starts; not called if there is a checkpoint.
        stages: what `initial` trains first, a line each.
        batches_from: the batches after a step, on their devices.
        volumes: scans that a step reads; 0 where it reads something else.
        best: the metric of the best checkpoint: lowest where it is a loss, else highest.
        describe_batch: the names of the scans in the batch of a step.
        data_fingerprint: what the order of the batches depends on; must be the same on resume.
        export: writes the trained model from its parameters and statistics by path.
    """

    name: str
    program: Program
    steps: int
    initial: Callable[[], TrainState]
    stages: Sequence[str] = ()
    batches_from: Callable[[int], Iterator[Any]]
    volumes: int = 0
    best: str = "loss"
    describe_batch: Callable[[int], Sequence[str]] = _no_names
    data_fingerprint: Mapping[str, int | float | str] = field(default_factory=dict)
    export: Callable[[HostArrays, HostArrays], None] = _no_export
