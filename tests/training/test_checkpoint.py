import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.optimizer import make_optimizer
from tumorchain_jax.training.state import TrainState

OPTIMIZER = make_optimizer("adamw", optax.constant_schedule(0.1), 0.0, 1.0)


def state_at(step: int, shape: tuple[int, ...] = (3, 2), frozen: str = "c") -> TrainState:
    trained = {"a/b": jnp.full(shape, step + 0.1), "d": jnp.full(4, step + 0.2)}
    optimizer = jax.tree.map(lambda leaf: leaf + step, OPTIMIZER.init(trained))
    return TrainState(jnp.int32(step), trained, {frozen: jnp.ones(2)}, optimizer)


def assert_equal_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def steps_kept(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


@contextmanager
def checkpoints(workdir: Path, keep: int = 2, **order: int) -> Iterator[Checkpoints]:
    manager = Checkpoints(workdir, keep, order)
    try:
        yield manager
    finally:
        manager.close()


def save(workdir: Path, *steps: int, keep: int = 2, **order: int) -> None:
    """Each better than the one before."""
    with checkpoints(workdir, keep, **order) as manager:
        for step in steps:
            manager.save(step, state_at(step), 1 / step)


def restore(workdir: Path, state: TrainState, **order: int) -> TrainState | None:
    with checkpoints(workdir, **order) as manager:
        return manager.restore(state)


def test_latest_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    assert_equal_trees(restore(tmp_path, state_at(0)), state_at(3))
    assert steps_kept(tmp_path) == {"2", "3"}


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert restore(tmp_path, state_at(0)) is None


def test_step_is_saved_once(tmp_path: Path) -> None:
    save(tmp_path, 5, 5, keep=9)
    save(tmp_path, 5, 6, keep=9)
    assert steps_kept(tmp_path) == {"5", "6"}


def test_best_is_saved_beside_the_newest(tmp_path: Path) -> None:
    with checkpoints(tmp_path, keep=1) as manager:
        for step, loss in ((1, 0.5), (2, 0.1), (3, 0.4)):
            manager.save(step, state_at(step), loss)
    with checkpoints(tmp_path, keep=1) as manager:  # losses are read again from disk
        manager.save(4, state_at(4), 0.3)
    assert steps_kept(tmp_path) == {"2", "4"}
    assert_equal_trees(restore(tmp_path, state_at(0)), state_at(4))


def test_order_of_data_resumes_with_itself_alone(tmp_path: Path) -> None:
    save(tmp_path, 1, seed=3, batch_size=8)
    assert restore(tmp_path, state_at(0), seed=3, batch_size=8)
    with pytest.raises(InputError, match="batch_size: found 8, expected 4"):
        restore(tmp_path, state_at(0), seed=3, batch_size=4)
    with pytest.raises(InputError, match="other: found none, expected 1"):
        restore(tmp_path, state_at(0), seed=3, batch_size=8, other=1)
    with pytest.raises(InputError, match="batch_size: found 8, expected none"):
        restore(tmp_path, state_at(0), seed=3)


def test_saved_state_may_be_consumed_at_once(tmp_path: Path) -> None:
    """The next step donates these arrays while they are still being written."""
    spoil = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf * 0, state), donate_argnums=0)
    state = state_at(1, (1000, 1000))
    with checkpoints(tmp_path) as manager:
        manager.save(1, state, 0.5)
        jax.block_until_ready(spoil(state))
    assert_equal_trees(restore(tmp_path, state_at(0, (1000, 1000))), state_at(1, (1000, 1000)))


def test_checkpoint_of_before_statistics_is_restored(tmp_path: Path) -> None:
    """A state of four fields, as it was saved before `TrainState.statistics`."""
    older = namedtuple("TrainState", ["step", "trained", "frozen", "optimizer"])(*state_at(3)[:4])
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["best"])
    (tmp_path / "checkpoints").mkdir()
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=options) as manager:
        arguments = ocp.args.StandardSave(older)
        manager.save(3, args=arguments, metrics={"best": 0.5}, custom_metadata={})
    assert_equal_trees(restore(tmp_path, state_at(0)), state_at(3))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_arrays(folder: Path) -> None:
    for path in (folder / "default").rglob("d/*"):
        cut(path)


DAMAGE = {
    "its list of arrays is cut": lambda folder: cut(folder / "default" / "_METADATA"),
    "its arrays are cut": cut_arrays,
    "its arrays are gone": lambda folder: shutil.rmtree(folder / "default"),
    "it is empty": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
}


# Orbax drops its other reads when one fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_checkpoint_is_put_aside_for_the_one_before(
    tmp_path: Path, damage: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1, 2)
    damage(tmp_path / "checkpoints" / "2")
    with checkpoints(tmp_path) as manager:
        assert_equal_trees(manager.restore(state_at(0)), state_at(1))
        manager.save(2, state_at(2), 0.5)
    warning = capsys.readouterr().err
    assert "checkpoints/2 is damaged" in warning
    assert warning.count("\n") == 1
    assert (tmp_path / "damaged" / "2").is_dir()
    assert_equal_trees(restore(tmp_path, state_at(0)), state_at(2))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_when_none_can_be_read_it_may_be_the_storage_and_all_stay(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for step in "12":
        cut(tmp_path / "checkpoints" / step / "default" / "_METADATA")
    with pytest.raises(InputError, match="found no readable checkpoint; step 2: ") as error:
        restore(tmp_path, state_at(0))
    assert "\n" not in str(error.value)
    assert steps_kept(tmp_path) == {"1", "2"}
    assert not (tmp_path / "damaged").exists()


FULL = """
import resource, sys
from pathlib import Path
import jax.numpy as jnp
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.state import TrainState

checkpoints = Checkpoints(Path(sys.argv[1]), 2, {})
checkpoints.save(1, TrainState(jnp.int32(1), {"w": jnp.ones((10, 10))}, {}, ()), 0.5)
checkpoints.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
checkpoints = Checkpoints(Path(sys.argv[1]), 2, {})
try:
    checkpoints.save(2, TrainState(jnp.int32(2), {"w": jnp.arange(1e6)}, {}, ()), 0.5)
    checkpoints.close()
except InputError as error:
    print(error)
"""


@pytest.mark.system(haste=True)
def test_disk_that_is_full_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """As a limit on the size of a file has it: an error in the middle of writing."""
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "expected a checkpoint written; free disk space" in done.stdout
    assert done.stdout.count("\n") == 1
    small = TrainState(jnp.int32(0), {"w": jnp.ones((10, 10))}, {}, ())
    found = restore(tmp_path, small)
    assert found is not None
    assert int(found.step) == 1


@pytest.mark.parametrize(
    ("state", "field", "found", "expected"),
    [
        (state_at(0, (3, 5)), "optimizer/1/0/mu/a/b", "(3, 2)", "(3, 5)"),
        (state_at(0, frozen="z"), "frozen/c", "(2,)", "no such array"),
        (state_at(0, frozen="b"), "frozen/b", "no such array", "(2,)"),
        (state_at(0)._replace(optimizer=()), "optimizer/1/0/count", "()", "no such array"),
    ],
    ids=["shape", "another", "missing", "optimizer"],
)
def test_checkpoint_of_another_configuration_is_refused(
    tmp_path: Path, state: TrainState, field: str, found: str, expected: str
) -> None:
    save(tmp_path, 1)
    with pytest.raises(InputError, match="name another workdir") as error:
        restore(tmp_path, state)
    assert error.value.field == field
    assert (error.value.found, error.value.expected) == (found, expected)
    assert str(tmp_path) in str(error.value)
