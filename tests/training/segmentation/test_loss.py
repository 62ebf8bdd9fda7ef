import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.training.segmentation.loss import segmentation_loss, soft_dice


def _patches() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (2, 4, 4, 4)).astype(np.int32)
    return jnp.asarray(rng.normal(size=(2, 4, 4, 4, 4)).astype(np.float32)), jnp.asarray(labels)


def test_loss_is_cross_entropy_less_dice() -> None:
    logits, labels = _patches()
    loss, metrics = segmentation_loss(logits, labels)
    x, y = np.asarray(logits, np.float64), np.asarray(labels)
    shares = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    truth = np.eye(4)[y]
    cross_entropy = -np.log((shares * truth).sum(-1)).mean()
    both, either = (2 * shares * truth).sum((1, 2, 3)), (shares + truth).sum((1, 2, 3))
    dice = (both / either)[:, 1:]  # nobody has class 3: its Dice is 0
    assert float(loss) == pytest.approx(cross_entropy - dice.mean(), rel=1e-4)
    assert float(metrics["cross_entropy"]) == pytest.approx(cross_entropy, rel=1e-4)
    assert float(metrics["dice"]) == pytest.approx(dice[:, :2].mean(), rel=1e-4)


def test_perfect_answers_cost_nothing_but_the_classes_seen() -> None:
    _, labels = _patches()
    logits = 100 * jax.nn.one_hot(labels, 4)
    loss, metrics = segmentation_loss(logits, labels)
    assert float(loss) == pytest.approx(-1, abs=1e-4)  # where a class is absent, so is it found
    assert float(metrics["dice"]) == pytest.approx(1, abs=1e-4)


def test_dice_of_each_patch_is_its_own() -> None:
    truth = jnp.zeros((2, 1, 1, 4, 1)).at[0, 0, 0, :2].set(1).at[1].set(1)
    shares = jnp.zeros((2, 1, 1, 4, 1)).at[:, 0, 0, 1:3].set(1)
    np.testing.assert_allclose(soft_dice(shares, truth)[:, 0], [2 / 4, 4 / 6], rtol=1e-4)
