"""Volume and density of organs."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.statistics import (
    OrganStatistics,
    organ_statistics,
    totalsegmentator_record,
)

NAMES = {1: "spleen", 5: "liver", 6: "stomach"}


def test_organ_is_measured() -> None:
    hu = np.full((12, 12, 12), -1000.0, np.float32)
    labels = np.zeros(hu.shape, np.uint8)
    labels[4:6, 4:6, 4:6] = 5
    hu[labels == 5] = np.arange(8)
    labels[9:, 6, 6] = 1
    hu[labels == 1] = 40
    ct = Volume(hu, np.array([[0, 2, 0, 9], [-2, 0, 0, 9], [0, 0, 5, 9], [0, 0, 0, 1.0]]))
    found = organ_statistics(ct, labels, NAMES)
    assert list(found) == ["spleen", "liver", "stomach"]
    assert found["liver"] == OrganStatistics(8, 0.16, 3.5, cut=False)
    assert found["spleen"] == OrganStatistics(3, 0.06, 40.0, cut=True)
    assert found["stomach"] == OrganStatistics(0, 0.0, None, cut=False)
    record = totalsegmentator_record(found)
    assert record["liver"] == {"volume": 160.0, "intensity": 3.5, "cut": False}
    assert record["stomach"] == {"volume": 0.0, "intensity": 0.0, "cut": False}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("place", "cut"), [(2, True), (3, False), (-3, True), (-4, False)])
def test_organ_at_the_edge_is_marked(axis: int, place: int, cut: bool) -> None:
    labels = np.zeros((12, 13, 14), np.uint8)
    middle = [6, 6, 6]
    middle[axis] = place
    labels[tuple(middle)] = 5
    ct = Volume(labels.astype(np.float32), np.eye(4))
    assert organ_statistics(ct, labels, NAMES)["liver"].cut == cut


def test_it_measures_as_totalsegmentator(shared_data: Path) -> None:
    """Its own statistics of its own example, made with `--stats_include_incomplete`."""
    folder = shared_data / "ct-totalsegmentator"
    image = nib.load(folder / "example_ct_sm.nii.gz")
    ct = Volume(np.asarray(image.dataobj).astype(np.float32), image.affine)
    labels = np.asarray(nib.load(folder / "example_seg_fast.nii.gz").dataobj).astype(np.uint8)
    names = dict(enumerate(TOTALSEGMENTATOR[1:], start=1))
    record = totalsegmentator_record(organ_statistics(ct, labels, names))
    expected = json.loads((folder / "example_seg_fast_statistics.json").read_text())
    assert list(record) == list(expected)
    for name, organ in expected.items():
        assert record[name]["volume"] == pytest.approx(organ["volume"], abs=1e-4)
        assert record[name]["intensity"] == pytest.approx(organ["intensity"], abs=1e-5)
    assert sum(organ["volume"] > 0 for organ in expected.values()) > 30
