"""Eq. 8 held against plain numpy, on a model that gives known logits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig
from tumorchain_jax.training.step import split
from tumorchain_jax.training.tumorchain.loss import (
    Batch,
    Sums,
    hybrid_loss,
    loss_sums,
    totals,
)

B, T, L, V = 4, 12, 3, 11
ORGANS = 57


class GivenLogits(TumorChain):
    """Its parameters are its answers; the text's are scaled by the brightest voxel."""

    def setup(self) -> None:
        self.text = self.param("text", lambda _: jnp.zeros((B, T, V)))
        self.organs = self.param("organs", lambda _: jnp.zeros((B, ORGANS, 2)))

    def hidden(self, volume: jax.Array, *_: Any) -> tuple[jax.Array, jax.Array]:
        return self.text * volume.max(), self.organs

    def logits(self, hidden: jax.Array) -> jax.Array:
        return hidden


@pytest.fixture
def params() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    text, organs = rng.normal(0, 5, (B, T, V)), rng.normal(size=(B, ORGANS, 2))
    return {"text": text.astype(np.float32), "organs": organs.astype(np.float32)}


@pytest.fixture
def batch() -> Batch:
    rng = np.random.default_rng(0)
    arrays = {
        "volume": np.full((B, 2, 2, 2), 51, np.uint8),  # 0.2 as the model sees it
        "tokens": rng.integers(0, V, (B, T), np.int32),
        "visual_index": np.full((B, T), -1, np.int32),
        "loss_mask": rng.random((B, T)) < 0.5,
        "positions": np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        "segment_ids": np.zeros((B, T), np.int32),
        "roi_index": np.zeros((B, ORGANS, L), np.int32),
        "roi_valid": np.arange(L) < rng.integers(0, L, (B, ORGANS, 1)),
        "abnormal": rng.integers(-1, 2, (B, ORGANS), np.int8),
    }
    return Batch(**jax.device_put(arrays))


@pytest.fixture
def sums(tiny: TumorChainConfig) -> Any:
    return lambda params, batch: jax.jit(loss_sums, static_argnums=0)(
        GivenLogits(tiny), params, batch
    )


def loss(sums: Sums, batch: Batch, alpha: float) -> float:
    return float(hybrid_loss(sums, *totals(batch), alpha))


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_equals_equation_8(params: dict, batch: Batch, sums: Any, alpha: float) -> None:
    text, organs, text_hits, organ_hits = [], [], [], []
    for b in range(B):
        for t in range(1, T):
            if batch.loss_mask[b, t]:
                logits = log_softmax(0.2 * params["text"][b, t - 1])
                text.append(-logits[batch.tokens[b, t]])
                text_hits.append(logits.argmax() == batch.tokens[b, t])
        for o in range(ORGANS):
            if batch.abnormal[b, o] >= 0 and batch.roi_valid[b, o].any():
                logits = log_softmax(params["organs"][b, o])
                organs.append(-logits[batch.abnormal[b, o]])
                organ_hits.append(logits.argmax() == batch.abnormal[b, o])
    found = sums(params, batch)
    expected = (text, text_hits, organs, organ_hits)
    assert (found.tokens, found.organs) == (len(text), len(organs)) == totals(batch)
    values = (found.token_loss, found.token_hits, found.organ_loss, found.organ_hits)
    np.testing.assert_allclose(values, [np.sum(x) for x in expected], rtol=1e-5)
    expected_loss = np.mean(text) + alpha * np.mean(organs)
    assert loss(found, batch, alpha) == pytest.approx(expected_loss, rel=1e-5)


def test_float_volume_is_read_as_it_is(params: dict, batch: Batch, sums: Any) -> None:
    as_float = batch._replace(volume=jnp.full((B, 2, 2, 2), 0.2))
    np.testing.assert_allclose(sums(params, as_float), sums(params, batch), rtol=1e-6)


def test_only_targets_count(params: dict, batch: Batch, sums: Any) -> None:
    before = sums(params, batch)
    # Nothing stands before the first token to predict it from.
    loss_mask = batch.loss_mask.at[..., 0].set(True)
    tokens = jnp.where(loss_mask, batch.tokens, (batch.tokens + 1) % V)
    same = sums(params, batch._replace(tokens=tokens, loss_mask=loss_mask))
    np.testing.assert_array_equal(same, before)
    other = sums(params, batch._replace(tokens=(batch.tokens + 1) % V))
    assert other.token_loss != before.token_loss


def test_unknown_and_absent_organs_do_not_count(params: dict, batch: Batch, sums: Any) -> None:
    before = sums(params, batch)
    ignored = (batch.abnormal < 0) | ~batch.roi_valid.any(2)
    spoilt = jnp.where(ignored[..., None], 99 * params["organs"], params["organs"])
    np.testing.assert_array_equal(sums(params | {"organs": spoilt}, batch), before)
    absent = batch._replace(abnormal=jnp.where(batch.roi_valid.any(2), batch.abnormal, 1))
    np.testing.assert_array_equal(sums(params, absent), before)


def test_nothing_known_is_no_loss_and_not_nan(params: dict, batch: Batch, sums: Any) -> None:
    unknown = batch._replace(abnormal=jnp.full((B, ORGANS), -1, jnp.int8))
    found = sums(params, unknown)
    assert (found.organs, found.organ_loss) == (0, 0)
    assert loss(found, unknown, 1.0) == loss(found, unknown, 0.0) > 0
    untold = unknown._replace(loss_mask=jnp.zeros((B, T), bool))
    assert loss(sums(params, untold), untold, 1.0) == 0


def test_scans_are_dealt_into_parts(batch: Batch) -> None:
    parts = split(batch, 2)
    assert parts.tokens.shape == (2, B // 2, T)
    for part in range(2):
        np.testing.assert_array_equal(parts.volume[part], batch.volume[part::2])
        np.testing.assert_array_equal(parts.abnormal[part], batch.abnormal[part::2])


@pytest.mark.parametrize("parts", [2, 3, 12])
def test_logits_made_in_parts_give_the_same_loss_and_gradient(
    parts: int, tiny: TumorChainConfig, params: dict, batch: Batch
) -> None:
    def loss(params: dict, parts: int) -> tuple[jax.Array, Sums]:
        sums = loss_sums(GivenLogits(tiny), params, batch, parts)
        return hybrid_loss(sums, *totals(batch), 0.3), sums

    def gradient(parts: int) -> Any:
        return jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)(params, parts)

    found, expected = gradient(parts), gradient(1)
    for left, right in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-8)


def test_parts_that_do_not_divide_the_row_are_refused(
    tiny: TumorChainConfig, params: dict, batch: Batch
) -> None:
    with pytest.raises(
        InputError, match="logits_chunks: found 5, expected a divisor of the row's 12"
    ):
        loss_sums(GivenLogits(tiny), params, batch, 5)
