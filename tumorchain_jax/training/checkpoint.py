"""Checkpoints while training, by Orbax; on any mesh and any number of processes."""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN
from orbax.checkpoint.options import MultiprocessingOptions

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, absolute
from tumorchain_jax.core.remote import move_folder
from tumorchain_jax.parallel.processes import barrier, is_primary
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.weights.array_check import check_shapes

DAMAGED = "damaged"
"""Folder for checkpoints that cannot be read; none is deleted."""
_BEST = "best"


class Checkpoints:
    """The numbered checkpoints of a run: the newest ones and the best one.

    They are written in the background. An unfinished one is never listed.

    Args:
        keep: how many of the newest.
        order: what the order of the data depends on; saved with each checkpoint, whose number is
            the number of batches read so far in that order.
    """

    def __init__(self, workdir: AnyPath, keep: int, order: Mapping[str, int | float | str]):
        self._workdir, self._order = workdir, dict(order)
        folder = epath.Path(absolute(workdir) / "checkpoints")
        folder.mkdir(exist_ok=True)
        processes = set(range(jax.process_count()))
        options = ocp.CheckpointManagerOptions(
            create=False,
            best_fn=_best,
            preservation_policy=AnyPreservationPolicy(
                [LatestN(keep), BestN(get_metric_fn=_best, reverse=True, n=1)]
            ),
            # By name, so that they wait for each other by JAX's coordinator, and not for ever.
            multiprocessing_options=MultiprocessingOptions(active_processes=processes),
        )
        self._manager = ocp.CheckpointManager(
            folder, options=options, item_handlers=ocp.StandardCheckpointHandler()
        )
        # `PreemptionListener` alone asks JAX about preemption: asking under other step numbers
        # would take its answer away.
        vars(self._manager)["reached_preemption"] = lambda step: False

    def restore(self, abstract: TrainState) -> TrainState | None:
        """The newest checkpoint, shaped and placed like `abstract`; None if there is none.

        One that cannot be read is moved to `damaged/`, with a warning, when one before it can.

        Raises:
            InputError: the checkpoint is of another configuration, or none can be read.
        """
        failed: dict[int, Exception] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            found = self._read(step, abstract)
            if not isinstance(found, Exception):
                for damaged, error in failed.items():
                    self._put_aside(damaged, error)
                return found
            failed[step] = found
        if not failed:
            return None
        newest, error = next(iter(failed.items()))
        line = " ".join(str(error).split())[:200]
        raise InputError(
            self._manager.directory,
            "checkpoint",
            f"no readable checkpoint; step {newest}: {type(error).__name__}: {line}",
            "a complete checkpoint",
            "check storage and memory; to train from the start, name another workdir",
        ) from error

    def _read(self, step: int, abstract: TrainState) -> TrainState | Exception:
        """Restore one step; return the exception if it cannot be read, on every process alike."""
        # Orbax and TensorStore raise no exception type of their own, so all are caught.
        order: dict[str, Any] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        error: Exception | None = None
        try:
            order = self._manager.metadata(step).custom_metadata or {}
            shapes = _shapes(self._manager.item_metadata(step).tree)
        except Exception as raised:
            error = raised
        if not _all_processes(error is None):
            return error or OSError("another process cannot read it")
        # Orbax would refuse another shape too, but with pages of its threads' errors.
        hint = "resume with the configuration it was trained with, or name another workdir"
        for name in order | self._order:
            if order.get(name) != self._order.get(name):
                found, expected = (str(own.get(name, "none")) for own in (order, self._order))
                raise InputError(self._manager.directory, name, found, expected, hint)
        check_shapes(self._manager.directory, shapes, _shapes(abstract), hint)
        state: TrainState | None = None
        try:
            arrays = ocp.args.StandardRestore(_fields(abstract))
            state = TrainState(**self._manager.restore(step, args=arrays))
        except Exception as raised:
            error = raised
        if not _all_processes(error is None) or state is None:
            return error or OSError("another process cannot read it")
        return state

    def _put_aside(self, step: int, error: Exception) -> None:
        folder = self._manager.directory / str(step)
        aside = self._workdir / DAMAGED / str(step)
        if is_primary():
            print(
                f"tumorchain: warning: checkpoint {folder} is damaged ({type(error).__name__}): "
                f"moved to {aside}; resuming from the previous one",
                file=sys.stderr,
            )
            move_folder(folder, _unused(aside))
        barrier(f"put aside {step}")
        self._manager.reload()

    def save(self, step: int, state: TrainState, loss: float) -> None:
        """Save in the background; skip a step that is already saved.

        Args:
            loss: which of the checkpoints is the best: the lowest.

        Raises:
            InputError: it, or the one before it, could not be written.
        """
        if step in self._manager.all_steps():
            return
        with self._writing():
            self._manager.save(
                step,
                args=ocp.args.StandardSave(_fields(state)),
                metrics={_BEST: loss},
                custom_metadata=self._order,
                force=True,
            )

    def close(self) -> None:
        """Wait for checkpoints that are being written.

        Raises:
            InputError: it could not be written.
        """
        with self._writing():
            try:
                self._manager.wait_until_finished()
            finally:
                self._manager.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            line = " ".join(str(error).split())
            # The message is long, and the errno's text may be anywhere in it.
            full = os.strerror(errno.ENOSPC)
            raise InputError(
                self._manager.directory,
                "checkpoint",
                full if full in line else f"{type(error).__name__}: {line[:200]}",
                "a checkpoint written",
                "free disk space, then rerun the same command to resume",
            ) from error


def _fields(state: TrainState) -> dict[str, Any]:
    """A state as a dict; without statistics where there are none, as in older checkpoints."""
    return {name: value for name, value in state._asdict().items() if name != "statistics" or value}


def _best(metrics: Mapping[str, float]) -> float:
    return metrics[_BEST]


def _all_processes(fine: bool) -> bool:
    if jax.process_count() == 1:
        return fine
    return bool(multihost_utils.process_allgather(fine).all())


def _unused(path: AnyPath) -> AnyPath:
    """Return the path, with a number appended if it exists."""
    names = (path.with_name(f"{path.name}.{i}") for i in range(1, 10**6))
    return path if not path.exists() else next(name for name in names if not name.exists())


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of a tree's arrays by path."""
    return {"/".join(path): tuple(leaf.shape) for path, leaf in ocp.tree.to_flat_dict(tree).items()}
