import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.segmentation.plans import Intensity, Plan, read_plan
from tumorchain_jax.segmentation.resample import plan_resize
from tumorchain_jax.training.segmentation.patches import (
    LINEAR,
    SOFT_TISSUE,
    LabelledScan,
    Patches,
    PatchSource,
    draw_patch,
    labelled_scan,
    measure_intensity,
    resample_labels,
    write_labelled_phantoms,
)
from tumorchain_jax.training.segmentation.plan import write_plan

SEEDS = 1_000_001, 1_000_002


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Coarse, and of two organs."""
    folder = tmp_path_factory.mktemp("plan")
    network = UNet3DConfig(
        1, 3, (4, 4), ((1, 1, 1), (2, 2, 2)), ((3, 3, 3),) * 2, (1, 1), (1,)
    )  # fmt: skip
    segmenter = {
        "name": "Dataset001_Tiny",
        "network": network,
        "spacing": (20.0, 16.0, 16.0),
        "patch_size": (8, 12, 12),
        "labels": ("liver", "spleen"),
    }
    write_plan(folder, ConfigDict(segmenter), Intensity(-20.0, 100.0, -190.0, 290.0))
    return read_plan(folder)


@pytest.fixture(scope="module")
def folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    write_labelled_phantoms(folder, plan, SEEDS[0], len(SEEDS), processes=1)
    return folder


def test_scan_lies_on_the_grid_of_the_plan(plan: Plan) -> None:
    patient = make_patient(SEEDS[0])
    scan = labelled_scan(patient, plan)
    extent = np.multiply(patient.ct.shape, patient.ct.spacing)[::-1]
    assert scan.image.shape == scan.labels.shape
    np.testing.assert_allclose(np.multiply(scan.labels.shape, plan.spacing), extent, atol=10)
    assert scan.image.min() == pytest.approx(-1.7, abs=1e-3)  # what is darker is cut off
    ml = np.bincount(scan.labels.ravel(), minlength=3) * np.prod(plan.spacing) / 1000
    for name, value in (("liver", 1), ("spleen", 2)):
        own = patient.labels.voxels == TOTALSEGMENTATOR.index(name)
        assert ml[value] == pytest.approx(own.sum() * np.prod(patient.ct.spacing) / 1000, rel=0.15)
    # The spleen is on the left: at low x, the last axis.
    left, right = (np.argwhere(scan.labels == value)[:, 2].mean() for value in (2, 1))
    assert left < right


def test_labels_are_resampled_to_the_largest() -> None:
    labels = np.zeros((4, 4, 4), np.uint8)
    labels[:2], labels[2:, :, :2] = 1, 2
    spacing = (1.0, 1.0, 1.0), (2.0, 2.0, 2.0)
    coarse = resample_labels(labels, plan_resize(LINEAR, labels.shape, (2, 2, 2), *spacing))
    assert coarse.dtype == np.uint8
    np.testing.assert_array_equal(coarse, [[[1, 1], [1, 1]], [[2, 0], [2, 0]]])


def test_labels_are_the_largest_of_their_resampled_masks() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, (9, 7, 8)).astype(np.uint8)
    resize = plan_resize(LINEAR, labels.shape, (11, 5, 8), (2.0, 2.0, 2.0), (1.6, 2.8, 2.0))
    rows = [
        np.eye(n) if w is None else w for w, n in zip(resize.weights, labels.shape, strict=True)
    ]
    masks = [np.einsum("def,xd,ye,zf->xyz", labels == own, *rows) for own in range(5)]
    found = resample_labels(labels, resize)
    of_found = np.take_along_axis(np.stack(masks), found[None].astype(int), axis=0)[0]
    # Ties are taken for the smaller label, or for either within the rounding of float32.
    np.testing.assert_allclose(of_found, np.max(masks, axis=0), atol=1e-6)


def test_thin_slices_are_resampled_in_their_places() -> None:
    labels = np.repeat(np.arange(9, dtype=np.uint8), 20)[:, None, None] * np.ones(
        (1, 2, 2), np.uint8
    )
    resize = plan_resize(LINEAR, labels.shape, (9, 2, 2), (0.5, 2.0, 2.0), (10.0, 2.0, 2.0))
    np.testing.assert_array_equal(resample_labels(labels, resize), labels[10::20])


def test_organs_look_like_themselves(plan: Plan) -> None:
    patient = make_patient(SEEDS[1])
    scan = labelled_scan(patient, plan)
    hu = patient.ct.voxels[patient.labels.voxels == TOTALSEGMENTATOR.index("liver")]
    seen = scan.image[scan.labels == 1].astype(np.float32) * 100 - 20
    assert np.median(seen) == pytest.approx(np.median(hu), abs=10)


def test_shards_hold_each_patient_and_are_not_made_again(folder: Path, plan: Plan) -> None:
    source = PatchSource(folder, plan.patch_size)
    assert len(source) == len(SEEDS)
    (shard,) = folder.glob("scans-*")
    written = shard.stat().st_mtime_ns
    write_labelled_phantoms(folder, plan, SEEDS[0], len(SEEDS), processes=1)
    assert shard.stat().st_mtime_ns == written
    with pytest.raises(InputError, match=r"phantoms\.json: phantoms: found .*name another folder"):
        write_labelled_phantoms(folder, plan, SEEDS[0] + 1, len(SEEDS), processes=1)
    assert json.loads((folder / "phantoms.json").read_bytes())["first_seed"] == SEEDS[0]


def _first(batches: Iterator[Patches], count: int) -> list[Patches]:
    return [next(batches) for _ in range(count)]


def test_batch_depends_on_seed_and_step_alone(folder: Path, plan: Plan) -> None:
    source = PatchSource(folder, plan.patch_size)
    whole = _first(source.batches(2, range(2), 0, 0), 4)
    later = _first(source.batches(2, range(2), 0, 2), 2)
    second_row = _first(source.batches(2, [1], 0, 0), 4)
    other = _first(source.batches(2, range(2), 1, 0), 1)
    for name in ("image", "labels"):
        for a, b in zip(whole[2:], later, strict=True):
            np.testing.assert_array_equal(a[name], b[name])
        for a, b in zip(whole, second_row, strict=True):
            np.testing.assert_array_equal(a[name][1:], b[name])
    assert whole[0]["image"].shape == (2, *plan.patch_size, 1)
    assert (whole[0]["image"] != other[0]["image"]).any()


def _ramp(shape: tuple[int, int, int]) -> LabelledScan:
    """Voxels that tell where they are; the label is rare."""
    labels = np.zeros(shape, np.uint8)
    labels[0, 0, 0] = 1
    return LabelledScan((1 + np.arange(labels.size)).reshape(shape).astype(np.float32), labels)


def test_patch_is_cut_out_whole() -> None:
    scan = _ramp((5, 6, 7))
    seen = {
        draw_patch(scan, (3, 3, 3), np.random.default_rng(seed))["image"].tobytes()
        for seed in range(500)
    }
    views = {
        scan.image[i : i + 3, j : j + 3, k : k + 3].tobytes()
        for i in range(3)
        for j in range(4)
        for k in range(5)
    }
    assert seen == views


def test_patch_beyond_the_scan_is_padded() -> None:
    scan = _ramp((2, 6, 7))
    patch = draw_patch(scan, (4, 6, 8), np.random.default_rng(0))
    assert patch["image"].shape == (4, 6, 8, 1)
    inside = patch["image"][..., 0] > 0
    assert inside.sum() == scan.image.size
    np.testing.assert_array_equal(patch["image"][inside][:, 0], scan.image.ravel())
    assert patch["labels"].sum() == 1


def test_rare_labels_are_shown_more_often() -> None:
    scan = _ramp((9, 9, 9))
    shown = [
        draw_patch(scan, (3, 3, 3), np.random.default_rng(seed))["labels"].any()
        for seed in range(300)
    ]
    assert 0.25 < np.mean(shown) < 0.42  # by chance 1 in 343


def test_intensity_is_that_of_soft_tissue(monkeypatch: pytest.MonkeyPatch) -> None:
    hu = np.array([-1000.0, *range(-100, 101), 1500.0])
    patient = SimpleNamespace(ct=SimpleNamespace(voxels=hu))
    monkeypatch.setattr(
        "tumorchain_jax.training.segmentation.patches.make_patient", lambda *_: patient
    )
    monkeypatch.setattr("tumorchain_jax.training.segmentation.patches.INTENSITY_SCANS", 3)
    intensity = measure_intensity(0)
    assert intensity.mean == pytest.approx(0, abs=2)
    assert intensity.std == pytest.approx(np.arange(-100, 101).std(), rel=0.05)
    assert (intensity.percentile_00_5, intensity.percentile_99_5) == pytest.approx((-99, 99), abs=1)
    assert SOFT_TISSUE[0] < -100
    assert SOFT_TISSUE[1] > 100
