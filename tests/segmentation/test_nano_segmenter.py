"""The segmenter that ships with the package: small, and good enough on patients it never saw."""

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.evaluation.dice import phantom_dice, summarise
from tumorchain_jax.pretrained import NANO_SEGMENTER
from tumorchain_jax.segmentation.factory import read_segmenter
from tumorchain_jax.segmentation.plans import read_plan

pytestmark = pytest.mark.system


FRESH = 3_000_001, 3_000_004
LEAST = {
    "liver": 0.8,
    "spleen": 0.7,
    "kidney_right": 0.7,
    "kidney_left": 0.7,
    "stomach": 0.7,
    "colon": 0.7,
    "pancreas": 0.5,
    "esophagus": 0.4,  # thin, and simple patients are none of those it was trained on
}


def test_it_is_small() -> None:
    files = [path for path in NANO_SEGMENTER.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"plans.json", "dataset.json", "README.md"}
    assert sum(path.stat().st_size for path in files) <= 6_000_000


def test_its_labels_are_totalsegmentator_s() -> None:
    labels = read_plan(NANO_SEGMENTER).labels
    assert set(LEAST) <= set(labels) <= set(TOTALSEGMENTATOR)


def test_it_finds_the_organs_of_fresh_patients() -> None:
    found = summarise(phantom_dice(read_segmenter(NANO_SEGMENTER), FRESH))
    low = {name: found[name].mean for name, least in LEAST.items() if found[name].mean < least}
    assert not low
    assert np.mean([organ.mean for organ in found.values()]) > 0.5
