import shutil
from dataclasses import replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grain.sources import ArrayRecordDataSource

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.pretraining.curriculum import Curriculum
from tumorchain_jax.training.pretraining.source import (
    BATCH_SHARES,
    CONTENTS,
    ORGAN_SHARE,
    OTHER_SHARE,
    TUMOUR_SHARE,
    UNKNOWN,
    CurriculumScans,
    PatchLabelSource,
    TrainingScans,
    cut_scan,
    draw_patches,
    scan_batches,
)

ENCODER = ViT3DConfig((16, 40, 40), (2, 4, 4))
GRID = ENCODER.cells
NO_MAP = np.zeros((0, 0, 0), np.uint8)


class Middle(np.random.Generator):
    """Shifts nothing and keeps the order."""

    def integers(self, *high: Any, **_: Any) -> Any:
        return high[0] // 2

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return x


class Shifted(np.random.Generator):
    """Shifts everything by half a patch."""

    def integers(self, *_: Any, **__: Any) -> Any:
        return 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patches")
    write_phantoms(folder, 0, 6, PreprocessConfig(ENCODER.image), 400, processes=1)
    return folder


@pytest.fixture(scope="module")
def scans(folder: Path) -> list[ModelScan]:
    source = ArrayRecordDataSource(shard_paths(folder, "scans"))
    return [ModelScan.from_bytes(source[index]) for index in range(len(source))]


def test_patches_and_labels_follow_the_maps(scans: list[ModelScan]) -> None:
    ill, kept = 0, []
    for scan in scans:
        middle = Middle(np.random.PCG64(0))
        patches = draw_patches(cut_scan(scan, ENCODER, middle), middle)
        assert len(set(patches["patch_index"])) == len(patches["patch_index"])
        for k, number in enumerate(patches["patch_index"]):
            d, h, w = np.unravel_index(number, GRID)
            box = np.s_[2 * d : 2 * d + 2, 4 * h : 4 * h + 4, 4 * w : 4 * w + 4]
            np.testing.assert_array_equal(patches["patches"][k], scan.image[box])
            filled = np.bincount(scan.labels[box].ravel(), minlength=57)
            assert filled[patches["organ"][k]] == filled.max()
            parts = np.bincount(scan.parts[box][scan.parts[box] > 0], minlength=22)
            assert parts[patches["part"][k]] == parts.max()
            size = prod(ENCODER.patch)
            shares = [(label, TUMOUR_SHARE) for label in DIGESTIVE]
            shares += [(kind, OTHER_SHARE) for kind in (METASTASIS, NODE, LOOK_ALIKE)]
            for f, (value, share) in enumerate(shares):
                if f < 5:
                    voxels = (scan.labels[box] == value) & (scan.lesions[box] > 0)
                    assert patches["present"][k, f] == (filled[value] > ORGAN_SHARE * size)
                else:
                    voxels = scan.others[box] == value
                count = np.count_nonzero(voxels)
                assert patches["found"][k, f] == (count > share * size)
                assert patches["unsure"][k, f] == (0 < count <= share * size)
            ill += patches["found"][k].any()
        np.testing.assert_array_equal(
            patches["traits"], np.tile(scan.traits[1:], (len(patches["patch_index"]), 1))
        )
        middles = [
            np.argwhere(scan.lesions == n).mean(0) // ENCODER.patch
            for n in np.unique(scan.lesions[scan.lesions > 0])
        ]
        expected = {int(np.ravel_multi_index(m.astype(int), GRID)) for m in middles}
        assert set(patches["patch_index"][patches["centre"]]) <= expected
        kept.append(len(set(patches["patch_index"]) & expected) == len(expected))
    assert ill > 10
    assert any(kept)


def test_patches_are_shifted_and_those_with_a_finding_are_all_there(scans: list[ModelScan]) -> None:
    scan = max(scans, key=lambda scan: np.count_nonzero(scan.lesions))
    rng = np.random.default_rng(0)
    one, other = (draw_patches(cut_scan(scan, ENCODER, rng), rng) for _ in range(2))
    assert not np.array_equal(one["patches"], other["patches"])
    assert one["found"].any()
    assert other["found"].any()


def test_batch_depends_on_its_step_and_each_group_has_its_share(folder: Path) -> None:
    source = PatchLabelSource(folder, ENCODER, crops=2, seed=0)
    whole = list(islice(source.batches(40, 0, 0), 7))
    for left, right in zip(whole[5:], islice(source.batches(40, 0, 5), 2), strict=True):
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    assert not np.array_equal(whole[0]["patches"], whole[1]["patches"])
    assert all(len(batch["patches"]) == 40 for batch in whole)
    found = np.mean([batch["found"].any(axis=1).mean() for batch in whole])
    assert found == pytest.approx(BATCH_SHARES[0], abs=0.02)


def test_patches_of_test_patients_are_left_out(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    names = sorted({record.patient for record in read_records(folder)})
    write_split(copy, {"train": names[:2], "test": names[2:]})
    few, all_ = (
        PatchLabelSource(path, ENCODER, 1, 0).patches["patches"] for path in (copy, folder)
    )
    assert 0 < len(few) < 0.5 * len(all_)
    np.testing.assert_array_equal(few, all_[: len(few)])


def test_scan_batches_are_shifted_with_the_labels_of_all_patches(
    folder: Path, scans: list[ModelScan]
) -> None:
    def steps(first: int, count: int) -> list[dict[str, np.ndarray]]:
        return list(islice(scan_batches(folder, ENCODER, 2, 0, first), count))

    batches = steps(0, 6)
    for left, right in zip(batches[4:], steps(4, 2), strict=True):
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    shifts = set()
    for batch in batches:
        assert batch["volume"].shape == (2, *ENCODER.image)
        assert batch["found"].shape[:2] == batch["organ"].shape == (2, prod(GRID))
        for volume in batch["volume"]:
            known = [
                (dz, dy, dx)
                for scan in scans
                for dz in (-1, 0, 1)
                for dy in range(-2, 3)
                for dx in range(-2, 3)
                if np.array_equal(
                    volume[2:-2, 4:-4, 4:-4],
                    np.roll(scan.image, (dz, dy, dx), (0, 1, 2))[2:-2, 4:-4, 4:-4],
                )
            ]
            assert len(known) == 1
            shifts.update(known)
    assert len(shifts) > 6


def with_maps(**maps: np.ndarray) -> ModelScan:
    """A scan of one patch along W for each that a test fills; other maps are empty."""
    empty = np.zeros(ENCODER.image, np.uint8)
    names = ("image", "labels", "parts", "lesions", "others")
    given = {name: maps.pop(name, empty) for name in names}
    return ModelScan(**given, traits=np.zeros(5, np.int8), abnormal=np.zeros(57, np.int8), **maps)


def test_content_is_what_fills_enough_of_a_patch() -> None:
    lesions, beyond, others = (np.zeros(ENCODER.image, np.uint8) for _ in range(3))
    half = np.s_[0:2, 0:4, :]  # the first row of patches, of 2 x 4 x 4 = 32 voxels
    lesions[half][..., 0:8] = 1
    beyond[half][..., 6:8] = 1  # the second patch lies half in the wall and half beyond it
    for number, kind in enumerate((NODE, METASTASIS, LOOK_ALIKE), start=2):
        others[half][..., 4 * number : 4 * number + 2] = kind
    lesions[0, 0, 20] = 1  # a voxel is too little of a tumour
    scan = with_maps(lesions=lesions, others=others, beyond=beyond)
    content = cut_scan(scan, ENCODER, Middle(np.random.PCG64(0)))["content"]
    names = [CONTENTS[value] for value in content[:5]]
    assert names == ["wall", "beyond the wall", "lymph node", "metastasis", "look-alike"]
    assert content[5] == UNKNOWN
    assert (content[6:] == 0).all()
    unknown = cut_scan(replace(scan, beyond=NO_MAP), ENCODER, Middle(np.random.PCG64(0)))
    assert (unknown["content"] == UNKNOWN).all()


def test_content_is_shifted_with_its_patches() -> None:
    lesions = np.zeros(ENCODER.image, np.uint8)
    lesions[4:8, 8:16, 8:16] = 1
    cut = cut_scan(with_maps(lesions=lesions, beyond=lesions), ENCODER, Shifted(np.random.PCG64(0)))
    names = {CONTENTS[value] for value in cut["content"]}
    assert names == {"nothing", "beyond the wall"}
    assert np.count_nonzero(cut["content"]) == 3 * 3 * 3


def test_content_without_the_truth_is_refused(folder: Path, without_truth: None) -> None:
    assert len(PatchLabelSource(folder, ENCODER, 1, 0).groups) == 3
    with pytest.raises(InputError, match="content=0"):
        PatchLabelSource(folder, ENCODER, 1, 0, content=True)
    with pytest.raises(InputError, match=r"curriculum\.share=0"):
        PatchLabelSource(folder, ENCODER, 1, 0, curriculum=Curriculum(40.0, 8.0, 10))


@pytest.fixture
def without_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans as they were stored before."""
    read = TrainingScans.__getitem__

    def old(scans: TrainingScans, index: int) -> ModelScan:
        return replace(read(scans, index), beyond=NO_MAP, lesion_mm=np.zeros(0, np.float32))

    monkeypatch.setattr(TrainingScans, "__getitem__", old)


def test_curriculum_draws_patches_of_large_lesions_first(
    folder: Path, scans: list[ModelScan]
) -> None:
    sizes = np.array([scan.lesion_mm[0] for scan in scans])
    ill = np.sort(sizes[sizes > 0])
    assert len(ill) > 1
    curriculum = Curriculum(float(ill[-1]), 0.0, 4)
    source = PatchLabelSource(folder, ENCODER, 1, 0, curriculum=curriculum)
    plain = PatchLabelSource(folder, ENCODER, 1, 0)
    for step in range(6):
        patches = np.concatenate(source._admitted(step))
        drawn = source.lesion_mm[patches]
        assert drawn[drawn > 0].min() >= curriculum.least_mm(step)
        assert (drawn == 0).any() == (sizes == 0).any()
    assert set(np.unique(source.lesion_mm)) == set(sizes.tolist())
    first, late = (next(source.batches(40, 0, step)) for step in (0, 4))
    np.testing.assert_array_equal(late["patches"], next(plain.batches(40, 0, 4))["patches"])
    assert not np.array_equal(first["patches"], next(plain.batches(40, 0, 0))["patches"])


def test_curriculum_of_scans_falls_with_the_step_and_is_resumed(
    folder: Path, scans: list[ModelScan]
) -> None:
    sizes = np.array([scan.lesion_mm[0] for scan in scans])
    curriculum = Curriculum(float(sizes.max()), 0.0, 8)
    drawn = CurriculumScans(TrainingScans(folder), curriculum, 4, 0)
    for step in range(12):
        for place in range(4 * step, 4 * step + 4):
            size = drawn[place].lesion_mm[0]
            assert size == 0 or size >= curriculum.least_mm(step)
    seen = {float(drawn[place].lesion_mm[0]) for place in range(32, 96)}
    assert seen == set(sizes.tolist())

    def steps(first: int, count: int) -> list[dict[str, np.ndarray]]:
        found = scan_batches(folder, ENCODER, 2, 0, first, curriculum=curriculum)
        return list(islice(found, count))

    for left, right in zip(steps(0, 5)[3:], steps(3, 2), strict=True):
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
