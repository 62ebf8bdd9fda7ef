from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.training.pretraining.loss import VALUES, Tags, patch_label_loss

CELLS = 6


def cells(**changed: Any) -> Tags:
    """Two cells with a tumour, two of a healthy digestive organ, two of none."""
    ill, digestive = np.arange(CELLS) < 2, np.arange(CELLS) < 4
    first = np.eye(8, dtype=bool)[0]
    tags = Tags(
        organ=np.full(CELLS, 5),
        part=np.where(digestive, 3, 0),
        present=digestive[:, None] & first[:5],
        found=ill[:, None] & first,
        unsure=np.zeros((CELLS, 8), bool),
        centre=ill,
        place=np.zeros((CELLS, 3), np.float32),
        traits=np.where(ill[:, None], 1, -1) * np.ones(4, int),
    )
    return Tags(*map(jnp.asarray, tags._replace(**changed)))


@pytest.fixture
def logits() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), len(VALUES))
    return {
        tag: jax.random.normal(key, (CELLS, values))
        for key, (tag, values) in zip(keys, VALUES.items(), strict=True)
    }


def test_each_group_counts_as_much_however_many_it_has(logits: dict[str, jax.Array]) -> None:
    once, _ = patch_label_loss(logits, cells())
    more = np.array(
        [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 4, 5]
    )  # the ill once, others two and three times
    many = {tag: values[more] for tag, values in logits.items()}
    again, _ = patch_label_loss(many, Tags(*(tag[more] for tag in cells())))
    assert float(again) == pytest.approx(float(once), rel=1e-5)


def test_what_is_unsure_and_traits_without_a_tumour_do_not_count(
    logits: dict[str, jax.Array],
) -> None:
    unsure = np.zeros((CELLS, 8), bool)
    unsure[3, 0] = True
    before, _ = patch_label_loss(logits, cells(unsure=unsure))
    logits["found"] = logits["found"].at[3, 0].add(9)
    logits["shape"] = logits["shape"].at[2:].add(jnp.array([9, 0]))
    after, _ = patch_label_loss(logits, cells(unsure=unsure))
    assert float(after) == pytest.approx(float(before), rel=1e-5)
    sure, _ = patch_label_loss(logits, cells())
    assert float(sure) > float(after) + 0.1


def test_scans_count_as_their_cells_do(logits: dict[str, jax.Array]) -> None:
    flat, _ = patch_label_loss(logits, cells())
    scans = {tag: values.reshape(2, 3, -1) for tag, values in logits.items()}
    shaped, _ = patch_label_loss(
        scans, Tags(*(tag.reshape(2, 3, *tag.shape[1:]) for tag in cells()))
    )
    assert float(shaped) == pytest.approx(float(flat), rel=1e-6)
