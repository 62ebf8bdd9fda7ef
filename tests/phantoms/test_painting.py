"""Lesions painted into a given CT."""

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.lesions import (
    DENSITIES,
)
from tumorchain_jax.phantoms.patient import (
    paint_lesion,
    truth,
)
from tumorchain_jax.scan.volume import Volume


def block(organ: int, size: int = 24) -> tuple[Volume, Volume]:
    """A cube of one organ in a larger cube of fat, 2 x 2 x 3 mm."""
    labels = np.zeros((40, 40, 30), np.uint8)
    labels[8 : 8 + size, 8 : 8 + size, 3 : 3 + size] = organ
    noise = np.random.default_rng(0).normal(0, 10, labels.shape)
    ct = (np.where(labels > 0, 60, -100) + noise).astype(np.float32)
    affine = np.diag([2.0, 2.0, 3.0, 1.0])
    return Volume(ct, affine, "block"), Volume(labels, affine, "block mask")


def test_painting_stays_in_the_organ_of_a_real_ct(real):
    ct, labels = real
    for organ in (5, 6, 7, 20):
        p = paint_lesion(ct, labels, seed=3, organ=organ)
        changed = p.ct.voxels != ct.voxels
        assert changed.any()
        assert (labels.voxels[changed] == organ).all()
        assert (labels.voxels[p.lesion_map.voxels > 0] == organ).all()
        assert np.array_equal(p.labels.voxels, labels.voxels)
        assert not p.other_map.voxels.any()
        assert p.body is None
        assert {lesion.organ for lesion in p.lesions} == {organ}
        assert "example_ct" in p.synthetic


@pytest.mark.parametrize("density", DENSITIES)
def test_painted_lesion_can_be_seen(density):
    ct, labels = block(5)
    seen = 0
    for seed in range(12):
        p = paint_lesion(ct, labels, seed)
        lesion = p.lesions[0]
        if (lesion.density, lesion.other) != (density, "none"):
            continue
        seen += 1
        contrast = p.ct.voxels[p.lesion_map.voxels > 0].mean() - 60
        assert (contrast if density == "hyperdense" else -contrast) > 20
    assert seen


def test_painting_chooses_an_organ_that_is_there():
    ct, labels = block(5)
    labels.voxels[:, :20] = np.where(labels.voxels[:, :20], 20, 0)
    organs = {paint_lesion(ct, labels, seed).lesions[0].organ for seed in range(8)}
    assert organs == {5, 20}
    assert {paint_lesion(ct, labels, seed, 20).lesions[0].organ for seed in range(4)} == {20}


def test_painting_is_determined_by_the_seed():
    one, other = (paint_lesion(*block(5), seed=4) for _ in range(2))
    assert np.array_equal(one.ct.voxels, other.ct.voxels)
    assert one.lesions == other.lesions
    assert not np.array_equal(one.ct.voxels, paint_lesion(*block(5), seed=5).ct.voxels)


@pytest.mark.parametrize("organ", [None, 7])
def test_painting_refuses_a_mask_without_room(organ):
    ct, labels = block(organ=1)
    with pytest.raises(InputError, match="block mask: organ: "):
        paint_lesion(ct, labels, 0, organ)


def test_painting_refuses_an_organ_that_is_too_thin():
    ct, labels = block(organ=1)
    labels.voxels[...] = 0
    labels.voxels[::4, ::4, ::4] = 5
    with pytest.raises(InputError, match="liver too thin for a lesion"):
        paint_lesion(ct, labels, 0)


def test_painting_refuses_an_organ_that_is_not_digestive():
    with pytest.raises(InputError, match="one of them, not 1"):
        paint_lesion(*block(organ=1), seed=0, organ=1)


def test_painting_refuses_another_grid():
    ct, labels = block(5)
    moved = Volume(labels.voxels, labels.affine + np.eye(4)[:, [3, 0, 1, 2]] * 5, "moved")
    for wrong in (moved, Volume(labels.voxels[1:], labels.affine, "cut")):
        with pytest.raises(InputError, match="grid"):
            paint_lesion(ct, wrong, seed=0)


def test_painting_leaves_the_body_unknown():
    assert truth(paint_lesion(*block(5), seed=0))["body"] is None
