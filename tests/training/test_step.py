from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.training.optimizer import make_optimizer, split_trainable
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.step import make_step
from tumorchain_jax.training.tumorchain.loss import Batch, HybridLoss

pytestmark = pytest.mark.program
B, T, V = 4, 6, 512
SHAPES = {"words/table": (V, V), "words/light": (V,), "organs/kernel": (57, 2), "organs/bias": (2,)}


class Bigrams(TumorChain):
    """A stand-in that compiles at once: guesses a word from the last one and the scan's light."""

    def setup(self) -> None:
        groups = unflatten(SHAPES)
        zeros = lambda _, shapes: jax.tree.map(jnp.zeros, shapes, is_leaf=is_shape)
        self.words = self.param("words", zeros, groups["words"])
        self.organs = self.param("organs", zeros, groups["organs"])

    def hidden(self, volume: jax.Array, tokens: jax.Array, *_: Any) -> tuple[jax.Array, jax.Array]:
        light = volume.mean((1, 2, 3))[:, None]
        text = self.words["table"][tokens] + (light * self.words["light"])[:, None]
        return text, light[..., None] * self.organs["kernel"] + self.organs["bias"]

    def logits(self, hidden: jax.Array) -> jax.Array:
        return hidden


def is_shape(leaf: Any) -> bool:
    return isinstance(leaf, tuple)


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Scans with unequal numbers of targets and organs: a mean of means would differ."""
    rng = np.random.default_rng(0)
    arrays = {
        "volume": rng.integers(0, 256, (B, 8, 16, 16), np.uint8),
        "tokens": rng.integers(0, V, (B, T), np.int32),
        "visual_index": rng.integers(-9, 9, (B, T), np.int32).clip(-1),
        "loss_mask": np.arange(T) > np.array([0, 3, 4, 5]).reshape(B, 1),
        "positions": np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        "segment_ids": np.zeros((B, T), np.int32),
        "roi_index": rng.integers(0, 9, (B, 57, 4), np.int32),
        "roi_valid": np.ones((B, 57, 4), bool),
        "abnormal": np.where(np.arange(57) < [[57], [9], [2], [0]], 1, -1).astype(np.int8),
    }
    return Batch(**jax.device_put(arrays))


def new_state(
    shapes: dict[str, tuple[int, ...]], optimizer: optax.GradientTransformation, rules: Sequence
) -> TrainState:
    rng = np.random.default_rng(0)
    params = {path: jnp.float32(rng.normal(0, 0.2, shape)) for path, shape in shapes.items()}
    trained, frozen = split_trainable(unflatten(params), rules)
    return TrainState(jnp.int32(0), trained, frozen, optimizer.init(trained))


def host(tree: Any) -> Any:
    return jax.tree.map(np.array, tree)


@pytest.fixture(scope="module")
def by_parts(tiny: TumorChainConfig, batch: Batch) -> dict[int, Any]:
    """(old parameters - new, metrics) of one step in 1, 2 and 4 parts.

    By plain gradient descent the difference is the gradient; Adam would hide its length.
    """
    loss, optimizer, found = HybridLoss(Bigrams(tiny), 0.7), optax.sgd(1.0), {}
    for parts in (1, 2, 4):
        state = new_state(SHAPES, optimizer, ((".*", True),))
        before = host(state.trained)
        state, metrics = make_step(loss, optimizer, accumulation=parts)(state, batch)
        found[parts] = jax.tree.map(np.subtract, before, host(state.trained)), host(metrics)
    return found


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_changes_nothing(by_parts: dict, parts: int) -> None:
    for found, expected in zip(by_parts[parts], by_parts[1], strict=True):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
            assert np.abs(value).max() > 0 or name == "token_accuracy"


def test_metrics_of_a_step(by_parts: dict) -> None:
    gradient, metrics = by_parts[1]
    expected = metrics["text_loss"] + 0.7 * metrics["organ_loss"]
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-6)
    norm = np.sqrt(sum(np.square(leaf).sum() for leaf in gradient.values()))
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-5)
    assert 0 < metrics["organ_accuracy"] < 1


def run_three_steps(model: TumorChain, batch: Batch, shapes: dict, rules: Sequence) -> set[str]:
    """Train, check what moved and what did not; returns the paths that were trained."""
    optimizer = make_optimizer("adamw", optax.constant_schedule(0.1), 0.0, 1.0)
    state = new_state(shapes, optimizer, rules)
    trained, frozen = host(state.trained), host(state.frozen)
    assert {**trained, **frozen}.keys() == shapes.keys()
    # Adam has two moments of each trained parameter, and two counts.
    moments = [leaf.shape for leaf in trained.values()]
    slots = [leaf.shape for leaf in jax.tree.leaves(state.optimizer)]
    assert sorted(slots) == sorted([*moments, *moments, (), ()])

    update, losses = make_step(HybridLoss(model, 1.0), optimizer), []
    for _ in range(3):
        state, metrics = update(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[2] < losses[0]
    assert int(state.step) == 3
    for path, leaf in frozen.items():
        np.testing.assert_array_equal(np.asarray(state.frozen[path]), leaf, err_msg=path)
    for path, leaf in trained.items():
        assert (np.asarray(state.trained[path]) != leaf).any(), path
    return set(trained)


def test_frozen_parameters_stay_bit_for_bit(tiny: TumorChainConfig, batch: Batch) -> None:
    rules = (("organs/bias", False), ("organs/.*|words/light", True), (".*", False))
    trained = run_three_steps(Bigrams(tiny), batch, SHAPES, rules)
    assert trained == {"organs/kernel", "words/light"}


def test_adapters_alone_are_trained(tiny: TumorChainConfig, batch: Batch) -> None:
    config = replace(tiny, lora=LoRA((r".*/(q_proj|v_proj)", "encoder/.*/qkv"), rank=2))
    shapes = {path: leaf.shape for path, leaf in abstract_params(config).items()}
    rules = ((".*/lora_[ab]", True), (".*", False))
    trained = run_three_steps(TumorChain(config), batch, shapes, rules)
    layers = (
        "encoder/blocks/qkv",
        "decoder/layers/self_attn/q_proj",
        "decoder/layers/self_attn/v_proj",
    )
    assert trained == {f"{layer}/lora_{x}" for layer in layers for x in "ab"}
