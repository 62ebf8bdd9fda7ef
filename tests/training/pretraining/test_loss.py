from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.training.pretraining.loss import (
    CONTENT,
    LOSS_WEIGHTS,
    VALUES,
    PatchLabels,
    label_sizes,
    patch_label_loss,
)
from tumorchain_jax.training.pretraining.source import UNKNOWN

PATCHES = 6


def patches(**changed: Any) -> PatchLabels:
    """Two patches with a tumour, two of a healthy digestive organ, two of none."""
    ill, digestive = np.arange(PATCHES) < 2, np.arange(PATCHES) < 4
    first = np.eye(8, dtype=bool)[0]
    labels = PatchLabels(
        organ=np.full(PATCHES, 5),
        part=np.where(digestive, 3, 0),
        present=digestive[:, None] & first[:5],
        found=ill[:, None] & first,
        unsure=np.zeros((PATCHES, 8), bool),
        centre=ill,
        place=np.zeros((PATCHES, 3), np.float32),
        traits=np.where(ill[:, None], 1, -1) * np.ones(4, int),
        content=np.where(ill, 2, 0),
    )
    return PatchLabels(*map(jnp.asarray, labels._replace(**changed)))


@pytest.fixture
def logits() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), len(VALUES))
    return {
        label: jax.random.normal(key, (PATCHES, values))
        for key, (label, values) in zip(keys, VALUES.items(), strict=True)
    }


@pytest.mark.system(haste=True)
def test_loss_weighs_each_group_the_same_whatever_its_size(logits: dict[str, jax.Array]) -> None:
    once, _ = patch_label_loss(logits, patches())
    more = np.array(
        [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 4, 5]
    )  # the ill once, others two and three times
    many = {label: values[more] for label, values in logits.items()}
    again, _ = patch_label_loss(many, PatchLabels(*(label[more] for label in patches())))
    assert float(again) == pytest.approx(float(once), rel=1e-5)


def test_loss_ignores_unsure_patches_and_traits_without_a_tumour(
    logits: dict[str, jax.Array],
) -> None:
    unsure = np.zeros((PATCHES, 8), bool)
    unsure[3, 0] = True
    before, _ = patch_label_loss(logits, patches(unsure=unsure))
    logits["found"] = logits["found"].at[3, 0].add(9)
    logits["shape"] = logits["shape"].at[2:].add(jnp.array([9, 0]))
    after, _ = patch_label_loss(logits, patches(unsure=unsure))
    assert float(after) == pytest.approx(float(before), rel=1e-5)
    sure, _ = patch_label_loss(logits, patches())
    assert float(sure) > float(after) + 0.1


def test_loss_of_scans_is_that_of_their_patches(logits: dict[str, jax.Array]) -> None:
    flat, _ = patch_label_loss(logits, patches())
    scans = {label: values.reshape(2, 3, -1) for label, values in logits.items()}
    shaped, _ = patch_label_loss(
        scans, PatchLabels(*(label.reshape(2, 3, *label.shape[1:]) for label in patches()))
    )
    assert float(shaped) == pytest.approx(float(flat), rel=1e-6)


def test_auxiliary_weights_of_zero_change_no_bit(logits: dict[str, jax.Array]) -> None:
    plain, metrics = patch_label_loss(logits, patches())
    unset, _ = patch_label_loss(logits, patches(), {"segment": 0.0, CONTENT: 0.0})
    assert np.asarray(plain).tobytes() == np.asarray(unset).tobytes()
    by_hand = sum(LOSS_WEIGHTS[label] * metrics[f"{label}_loss"] for label in VALUES)
    assert float(plain) == pytest.approx(float(by_hand), rel=1e-6)
    assert CONTENT not in label_sizes(True, {"segment": 1.0, CONTENT: 0.0})
    assert label_sizes(True, {"segment": 0.0, CONTENT: 0.5})[CONTENT] == 6


def test_segment_weight_adds_to_that_of_the_part(logits: dict[str, jax.Array]) -> None:
    plain, metrics = patch_label_loss(logits, patches())
    more, _ = patch_label_loss(logits, patches(), {"segment": 2.0, CONTENT: 0.0})
    assert float(more) == pytest.approx(float(plain + 2 * metrics["part_loss"]), rel=1e-6)


def test_content_head_learns_from_patches_of_known_content(logits: dict[str, jax.Array]) -> None:
    plain, _ = patch_label_loss(logits, patches())
    labels = patches(content=np.array([2, UNKNOWN, 0, 0, 0, 0]))

    def loss(head: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        return patch_label_loss(logits | {CONTENT: head}, labels, {"segment": 0.0, CONTENT: 3.0})

    head = jax.random.normal(jax.random.key(1), (PATCHES, 6))
    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(head)
    known = np.array([0.175, 0, 0.25, 0.25, 0.075, 0.075])  # shares of 0.35, 0.5 and 0.15
    entropy = -jax.nn.log_softmax(head)[np.arange(PATCHES), np.maximum(labels.content, 0)]
    expected = float((known * entropy).sum() / known.sum())
    assert float(metrics["content_loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(value) == pytest.approx(float(plain) + 3 * expected, rel=1e-5)
    assert np.asarray(gradient).any(axis=1).tolist() == [True, False, True, True, True, True]
