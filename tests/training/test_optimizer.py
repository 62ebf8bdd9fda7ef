from math import cos, pi
from typing import Any

import jax
import numpy as np
import optax
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.training.optimizer import (
    Unfreeze,
    learning_rate,
    make_optimizer,
    split_trainable,
)

PARAMS = {
    "encoder": {"kernel": 1, "bias": 2},
    "decoder": {"q_proj": {"kernel": 3, "lora_a": 4, "lora_b": 5}},
}


def test_learning_rate_warms_up_and_decays_to_zero() -> None:
    """Table 5: cosine, warm-up over 0.03 of the steps."""
    rate = learning_rate(2e-4, 1000, 0.03)
    assert float(rate(0)) == 0
    assert float(rate(15)) == pytest.approx(1e-4)
    assert float(rate(30)) == pytest.approx(2e-4)
    for step in (31, 500, 515, 999):
        expected = 2e-4 * (1 + cos(pi * (step - 30) / 970)) / 2
        assert float(rate(step)) == pytest.approx(expected, rel=1e-4, abs=1e-11)
    assert 0 < float(rate(999)) < 1e-8
    assert float(rate(1000)) == pytest.approx(0, abs=1e-11)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_learning_rate_of_a_short_run(steps: int) -> None:
    rate = learning_rate(1.0, steps, 0.03)
    assert float(rate(0)) == 0
    assert float(rate(1)) == 1


def first_update(weight_decay: float, **options: Any) -> dict[str, float]:
    optimizer = make_optimizer("adamw", optax.constant_schedule(0.1), weight_decay, 1.0, **options)
    params = {"a/b": np.float32(2.0), "c": np.float32(2.0)}
    gradients = {"a/b": np.float32(5.0), "c": np.float32(-7.0)}
    updates, _ = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    return {path: float(update) for path, update in updates.items()}


def test_adamw_s_first_step_is_the_learning_rate() -> None:
    assert first_update(0.0) == pytest.approx({"a/b": -0.1, "c": 0.1}, rel=1e-5)
    decay = 0.1 * 0.5 * 2
    assert first_update(0.5) == pytest.approx({"a/b": -0.1 - decay, "c": 0.1 - decay}, abs=1e-6)


def test_rules_scale_the_learning_rate() -> None:
    updates = first_update(0.0, lr_multiplier=(("a/.*", 0.3), (".*", 1.0)))
    assert updates == pytest.approx({"a/b": -0.03, "c": 0.1}, rel=1e-5)
    with pytest.raises(InputError, match="none for c among"):
        first_update(0.0, lr_multiplier=(("a/.*", 0.3),))


def test_gradients_are_clipped_by_their_global_norm() -> None:
    optimizer = make_optimizer("adamw", optax.constant_schedule(0.1), 0.0, 1.0)
    params = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}
    gradients = {"a": np.float32([3.0]), "b": np.float32([4.0])}
    _, state = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    (mean,) = (leaf for leaf in state[1] if isinstance(leaf, optax.ScaleByAdamState))
    np.testing.assert_allclose([mean.mu["a"], mean.mu["b"]], [[0.06], [0.08]], rtol=1e-5)


def test_muon_makes_the_updates_of_matrices_orthogonal_and_leaves_the_rest_to_adamw() -> None:
    rng = np.random.default_rng(0)
    shapes = {
        "decoder/layers/q_proj/kernel": (2, 6, 4),  # two layers
        "decoder/layers/q_proj/bias": (2, 4),
        "decoder/embed_tokens/embedding": (5, 4),
        "organ_classifier/fc/kernel": (4, 2),
    }
    params = {path: np.ones(shape, np.float32) for path, shape in shapes.items()}
    gradients = {p: rng.normal(size=shape).astype(np.float32) for p, shape in shapes.items()}
    optimizer = make_optimizer("muon", optax.constant_schedule(0.1), 0.0, 1.0)
    updates, _ = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    for layer in updates.pop("decoder/layers/q_proj/kernel"):
        singular = np.linalg.svd(layer, compute_uv=False)
        # The quintic iteration of Muon ends near 1, not at it; wide and tall ones are scaled.
        assert (singular > 0.06).all()
        assert (singular < 0.16).all()
    for path, update in updates.items():
        # With Nesterov's momentum the first step of Adam is 1.47 times the learning rate.
        np.testing.assert_allclose(update, -0.0147 * np.sign(gradients[path]), rtol=5e-3)


def test_another_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match="optimizer: found sgd, expected adamw or muon"):
        make_optimizer("sgd", optax.constant_schedule(0.1), 0.0, 1.0)


def test_rules_the_first_match_of_the_whole_path_wins() -> None:
    rules = ((".*/lora_[ab]", True), ("encoder/bias", True), ("bias|.*", False))
    trained, frozen = split_trainable(PARAMS, rules)
    assert trained == {
        "decoder/q_proj/lora_a": 4,
        "decoder/q_proj/lora_b": 5,
        "encoder/bias": 2,
    }
    assert frozen == {"decoder/q_proj/kernel": 3, "encoder/kernel": 1}


def test_everything_may_be_trained() -> None:
    trained, frozen = split_trainable(PARAMS, ((".*", True),))
    assert len(trained) == 5
    assert frozen == {}


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ((("encoder/.*", True), ("decoder/lora", False)), "decoder/q_proj/kernel"),
        ((("decoder/q_proj", True),), "encoder/kernel"),
        ((), "encoder/kernel"),
        (((".*/lorra_a", True), (".*", False)), "freeze everything"),
    ],
)
def test_rules_that_leave_something_open_are_refused(rules: tuple, found: str) -> None:
    with pytest.raises(InputError) as error:
        split_trainable(PARAMS, rules)
    assert found in error.value.found
    assert "\n" not in str(error.value)


def trajectory(
    kind: str, paths: tuple[str, ...], unfreeze: Unfreeze | None = None
) -> list[dict[str, np.ndarray]]:
    """The parameters before the first of four steps, and after each."""
    rng = np.random.default_rng(0)
    whole = {path: rng.normal(size=(4, 4)).astype(np.float32) for path in BOTH}
    params = {path: whole[path] for path in paths}
    schedule = optax.constant_schedule(0.1)
    optimizer = make_optimizer(kind, schedule, 0.1, 1.0, unfreeze=unfreeze)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    seen = [params]
    for _ in range(4):
        drawn = {path: rng.normal(size=(4, 4)).astype(np.float32) for path in BOTH}
        updates, state = update({path: drawn[path] for path in paths}, state, params)
        params = jax.tree.map(np.asarray, optax.apply_updates(params, updates))
        seen.append(params)
    return seen


BOTH = ("decoder/a/kernel", "encoder/b/kernel")


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_unfreeze_trains_from_its_step_on(kind: str) -> None:
    late = trajectory(kind, BOTH, Unfreeze("encoder/.*", 2, 0.25))
    frozen, plain = trajectory(kind, BOTH[:1]), trajectory(kind, BOTH)
    first = late[0][BOTH[1]]
    for step in (1, 2):
        assert late[step][BOTH[1]].tobytes() == first.tobytes()
        np.testing.assert_allclose(late[step][BOTH[0]], frozen[step][BOTH[0]], rtol=1e-5)
        assert not np.allclose(late[step][BOTH[0]], plain[0][BOTH[0]])
    rates = [np.abs(late[3][path] - late[2][path]).max() for path in BOTH]
    assert 0 < rates[1] < 0.6 * rates[0]
    at_once = trajectory(kind, BOTH, Unfreeze("encoder/.*", 0, 1.0))
    for path in BOTH:
        np.testing.assert_allclose(at_once[-1][path], plain[-1][path], rtol=1e-5, atol=1e-6)
