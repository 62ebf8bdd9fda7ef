"""Anatomies drawn from the parametric trunk and from label maps."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.field_of_view import Frame, draw_ends
from tumorchain_jax.phantoms.hollow_organs import fill_hollow_organs
from tumorchain_jax.phantoms.label_maps import (
    BODY,
    OTHER_BONE,
    VOXEL_MM,
    fingerprint,
    read_label_maps,
)
from tumorchain_jax.phantoms.sources import Sources, draw_anatomy, load_sources
from tumorchain_jax.phantoms.template import complete
from tumorchain_jax.phantoms.trunk_labels import DEPTH_UNIT_MM

LABELLED = (
    Tissue.MUSCLE,
    Tissue.BONE,
    Tissue.ORGAN,
    Tissue.GAS,
    Tissue.CONTENT,
    Tissue.LUNG,
)
# Centre and half-axes in mm about L3; the patient's right, anterior and superior are positive.
ORGANS = {
    5: ((75, 30, 85), (75, 70, 75)), 1: ((-110, -20, 90), (28, 40, 50)),
    2: ((65, -10, 30), (26, 25, 55)), 3: ((-65, -10, 40), (26, 25, 55)),
    21: ((0, 50, -165), (38, 32, 28)), 25: ((0, -35, -125), (45, 25, 40)),
    77: ((-95, 5, -125), (20, 45, 70)), 78: ((95, 5, -125), (20, 45, 70)),
    20: ((98, 40, -40), (22, 22, 80)),
}  # fmt: skip


def grid(step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y, z = np.meshgrid(
        np.arange(-180, 181, step),
        np.arange(-110, 141, step),
        np.arange(-200, 181, step),
        indexing="ij",
        sparse=True,
    )
    return x, y, z


def body_map(step: float = 4.0, body: int = 200) -> np.ndarray:
    """A patient of ellipsoids within an elliptic cylinder."""
    x, y, z = grid(step)
    labels = np.where((x / 165) ** 2 + ((y - 15) / 115) ** 2 + 0 * z < 1, body, 0).astype(np.uint8)
    for label, (centre, half) in ORGANS.items():
        offsets = ((u - c) / h for u, c, h in zip((x, y, z), centre, half, strict=True))
        labels[sum(offset**2 for offset in offsets) < 1] = label
    return labels


def save(path: Path, labels: np.ndarray, step: float = 4.0, affine: np.ndarray | None = None):
    nib.save(nib.Nifti1Image(labels, np.diag([step] * 3 + [1]) if affine is None else affine), path)


@pytest.fixture(scope="module")
def map_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps")
    save(folder / "ellipsoids.nii.gz", body_map())
    return folder


@pytest.fixture(scope="module")
def mapped(map_folder: Path) -> Sources:
    return load_sources(map_folder)


@pytest.fixture(scope="module")
def anatomies(mapped: Sources) -> list[Anatomy]:
    return [draw_anatomy(np.random.default_rng(seed), mapped) for seed in range(16)]


def middle(labels: np.ndarray, label: int) -> np.ndarray:
    return np.argwhere(labels == label).mean(0)


def shows_abdomen(anatomy: Anatomy) -> bool:
    """Whether liver and bladder are there and the first and last slice hold neither."""
    liver, bladder = ((anatomy.labels == n).any((0, 1)) for n in (5, 21))
    return bool(liver.any() and bladder.any() and not liver[-1] and not bladder[0])


def test_sources_same_seed_same_voxels(mapped):
    for sources in (mapped, load_sources(None)):
        first, second = (draw_anatomy(np.random.default_rng(5), sources) for _ in range(2))
        np.testing.assert_array_equal(first.labels, second.labels)
        np.testing.assert_array_equal(first.tissue, second.tissue)
        np.testing.assert_array_equal(first.affine, second.affine)
        other = draw_anatomy(np.random.default_rng(6), sources)
        assert other.labels.shape != first.labels.shape or (other.labels != first.labels).any()


def test_sources_both_kinds_are_drawn(anatomies):
    kinds = [anatomy.source for anatomy in anatomies]
    assert {"a parametric trunk"} < set(kinds)
    assert any("ellipsoids.nii.gz" in kind for kind in kinds)


def test_anatomy_labels_and_tissues_agree(anatomies):
    for anatomy in anatomies:
        assert np.isin(anatomy.tissue[anatomy.labels > 0], LABELLED).all()
        assert anatomy.labels.max() <= 117
        assert anatomy.labels.dtype == np.uint8
        hollow = np.isin(anatomy.tissue, (Tissue.GAS, Tissue.CONTENT))
        assert np.isin(anatomy.labels[hollow], (4, 6, 15, 16, 18, 19, 20, 21)).all()
        assert (np.diag(anatomy.affine)[:3] > 0).all()


def test_anatomy_grid_is_that_of_a_scan(anatomies):
    spacing = np.array([anatomy.affine.diagonal()[:3] for anatomy in anatomies])
    assert (spacing[:, 0] >= 2).all()
    assert (spacing[:, 0] <= 4).all()
    assert spacing[:, 2].min() >= 0.7
    assert np.ptp(spacing[:, 2]) > 2
    assert max(anatomy.labels.size for anatomy in anatomies) < 1.7e6


def test_anatomy_sides_and_order(anatomies):
    whole = [anatomy for anatomy in anatomies if shows_abdomen(anatomy)]
    assert len(whole) >= 6
    for anatomy in whole:
        labels = anatomy.labels
        required = (1, 2, 3, 5, 6, 7, 18, 19, 20, 21, 25, 27, 28, 29, 30, 31, 52, 63, 77, 78)
        assert set(required) <= set(np.unique(labels).tolist())
        assert middle(labels, 5)[0] > middle(labels, 1)[0]
        assert middle(labels, 2)[0] > middle(labels, 3)[0]
        assert middle(labels, 29)[1] < middle(labels, 6)[1]  # the spine lies behind the stomach
        heights = [middle(labels, vertebra)[2] for vertebra in range(27, 33)]  # L5 to T12
        assert (np.diff(heights) > 0).all()


def test_draw_ends_whole_abdomen_or_a_part():
    boxes = {
        label: (np.array(centre, float) - half, np.array(centre, float) + half)
        for label, (centre, half) in ORGANS.items()
    }
    frame = Frame(np.array([-180.0, -110, -230]), np.array([180.0, 140, 300]), boxes)
    rng = np.random.default_rng(0)
    ends = np.array([draw_ends(rng, frame) for _ in range(500)])
    assert (ends[:, 1] - ends[:, 0] >= 119).all()
    assert ends.min() >= -230
    assert ends.max() <= 300
    bladder, liver = (ends[:, 0] < -193), (ends[:, 1] > 160)
    assert 0.6 < (bladder & liver).mean() < 0.8
    assert (liver & (ends[:, 0] > -100)).mean() > 0.1  # upper abdomen
    assert (bladder & (ends[:, 1] < 20)).mean() > 0.03  # pelvis


def test_anatomy_volumes(anatomies):
    ranges = {5: (600, 3000), 1: (50, 700), 2: (60, 350), 3: (60, 350)}
    for anatomy in filter(shows_abdomen, anatomies):
        voxel_ml = np.linalg.det(anatomy.affine[:3, :3]) / 1000
        for label, (least, most) in ranges.items():
            assert least < np.count_nonzero(anatomy.labels == label) * voxel_ml < most


def gas_and_content(anatomy: Anatomy, label: int) -> list[np.ndarray]:
    own = anatomy.labels == label
    return [
        np.argwhere(own & (anatomy.tissue == tissue)) for tissue in (Tissue.GAS, Tissue.CONTENT)
    ]


def test_anatomy_gas_rises(anatomies):
    seen = 0
    for anatomy in anatomies:
        gas, content = gas_and_content(anatomy, 6)
        if min(len(gas), len(content)) > 200:
            assert (gas[:, 1].mean() > content[:, 1].mean()) != anatomy.prone
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize("prone", [False, True])
def test_hollow_organ_has_wall_gas_and_content(prone):
    x, y, z = np.meshgrid(*[np.arange(-40, 41, 2.0)] * 3, indexing="ij")
    depth = 36 - np.sqrt(x**2 + y**2 + z**2)
    labels = np.where(depth > 0, np.uint8(6), np.uint8(0))
    tissue = np.where(depth > 0, np.uint8(Tissue.ORGAN), np.uint8(Tissue.FAT))
    inner = (depth / DEPTH_UNIT_MM).clip(0, 255).astype(np.uint8)
    before = tissue.copy()
    rng = np.random.default_rng(1)
    fill_hollow_organs(rng, labels, tissue, inner, np.full(3, 2.0), prone)
    assert (tissue[depth < 2] == before[depth < 2]).all()
    assert set(np.unique(tissue[depth > 5])) == {Tissue.GAS, Tissue.CONTENT}
    gas, content = y[tissue == Tissue.GAS], y[tissue == Tissue.CONTENT]
    assert (gas.mean() < content.mean()) == prone


def test_template_never_overwrites_the_map(map_folder):
    (source,) = read_label_maps(map_folder)
    template = complete(source)
    pad = (template.labels.shape[0] - source.labels.shape[0]) // 2
    inner = template.labels[pad:-pad, pad:-pad]
    own = (source.labels > 0) & (source.labels < BODY)
    np.testing.assert_array_equal(inner[own], source.labels[own])
    assert {6, 7, 18, 19, 29, 52, 88} <= template.filled
    assert not template.filled & set(ORGANS)
    # Nothing is filled in outside of the body.
    assert not np.any(inner[source.labels == 0])
    assert template.volumes_ml[5] == pytest.approx((source.labels == 5).sum() * VOXEL_MM**3 / 1000)


def test_template_without_a_body_gets_one(tmp_path):
    save(tmp_path / "organs.nii.gz", body_map(body=0))
    template = complete(*read_label_maps(tmp_path))
    skin = (template.tissue == Tissue.OUTSIDE) & (template.layer <= 64)
    assert (template.tissue == Tissue.MUSCLE).any()
    assert skin.any()
    liver = template.labels == 5
    assert not np.any(template.layer[liver])


def test_label_maps_any_orientation_reads_the_same(map_folder, tmp_path):
    labels = body_map()
    turned = np.ascontiguousarray(labels[::-1, ::-1].transpose(1, 2, 0))
    affine = np.array([[0, 0, -4, 0], [-4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 1]])
    save(tmp_path / "turned.nii.gz", turned, affine=affine)
    (first,), (second,) = read_label_maps(map_folder), read_label_maps(tmp_path)
    np.testing.assert_array_equal(first.labels, second.labels)


def test_sources_fingerprint_follows_the_maps(mapped, tmp_path):
    labels = body_map()
    save(tmp_path / "ellipsoids.nii.gz", labels)
    assert mapped.fingerprint == fingerprint(tmp_path)
    labels[0, 0, 0] = 200
    save(tmp_path / "ellipsoids.nii.gz", labels)
    assert mapped.fingerprint != fingerprint(tmp_path)
    assert "1 label map (ellipsoids.nii.gz; sha256" in mapped.phrase
    assert load_sources(None).phrase == "a parametric trunk"


def oblique() -> np.ndarray:
    c, s = np.cos(0.2), np.sin(0.2)
    return np.array([[4 * c, -4 * s, 0, 0], [4 * s, 4 * c, 0, 0], [0, 0, 4, 0], [0, 0, 0, 1]])


def older_ids() -> np.ndarray:
    """TotalSegmentator v1: 18 to 22 are L5 to L1."""
    labels = np.zeros((40, 40, 60), np.uint8)
    for n, label in enumerate(range(18, 23)):
        labels[15:25, 10:20, 5 + 8 * n : 12 + 8 * n] = label
    return labels


@pytest.mark.parametrize(
    ("labels", "affine", "message"),
    [
        (lambda: np.full((8, 8, 8), 130, np.uint8), None, "labels: found 130, expected 0 to 117"),
        (lambda: np.full((8, 8, 8), 1.5, np.float32), None, "labels: found 1.5"),
        (lambda: np.zeros((8, 8, 8), np.uint8), None, "no organ"),
        (lambda: np.ones((8, 8, 8, 2), np.uint8), None, "8"),
        (older_ids, None, "TotalSegmentator v1"),
        (lambda: body_map(8)[::-1], None, "label 5 .liver. left of label 1"),
        (lambda: body_map(8)[:, :, ::-1], None, "label 5 .liver. below the pelvis"),
        (lambda: body_map(8), oblique(), "affine: found an oblique grid"),
    ],
)
def test_sources_bad_map_is_one_line(tmp_path, labels, affine, message):
    save(tmp_path / "bad.nii.gz", np.ascontiguousarray(labels()), affine=affine)
    with pytest.raises(InputError, match=message) as error:
        load_sources(tmp_path)
    assert "bad.nii.gz" in str(error.value)
    assert "\n" not in str(error.value)


def test_sources_bad_folder_is_one_line(tmp_path, map_folder):
    with pytest.raises(InputError, match="no folder"):
        load_sources(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"found no [*]\.nii\.gz, expected label maps"):
        load_sources(tmp_path)
    with pytest.raises(InputError, match=f"but some in {map_folder.name}/"):
        load_sources(map_folder.parent)
    (tmp_path / "broken.nii.gz").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"broken\.nii\.gz"):
        load_sources(tmp_path)


def test_label_maps_names_of_values(tmp_path):
    labels = body_map(8)
    labels[20:23, 15:18, 20:23] = 208
    save(tmp_path / "map.nii.gz", labels, 8.0)
    names = {"5": "liver", "200": "body", "208": "bone_other"}
    (tmp_path / "labels.json").write_text(json.dumps(names))
    (source,) = read_label_maps(tmp_path)
    assert {BODY, OTHER_BONE} <= set(np.unique(source.labels).tolist())
    (tmp_path / "labels.json").write_text(json.dumps(names | {"5": "aorta"}))
    with pytest.raises(InputError, match="label 5: found aorta, expected liver"):
        read_label_maps(tmp_path)
    (tmp_path / "labels.json").write_text(json.dumps({"200": "body"}))
    with pytest.raises(InputError, match="labels: found 208, expected values that labels"):
        read_label_maps(tmp_path)


def test_sources_reference_body(shared_data, tmp_path):
    folder = shared_data / "anatomies" / "hra-visible-human"
    if not folder.is_dir():
        pytest.skip(f"no label maps at {folder}")
    for name in ("VH_M_abdomen_2mm.nii.gz", "cases.json"):
        (tmp_path / name).symlink_to(folder / name)
    shutil.copy(folder.parent / "labels.json", tmp_path)
    sources = load_sources(tmp_path)
    (template,) = sources.templates
    assert template.female is False
    own = set(np.unique(template.labels).tolist()) - template.filled
    assert {1, 2, 3, 4, 5, 7, 18, 19, 20, 21, 22, 25, 51, 77, 78} <= own
    assert {6, 15, 27, 31, 52, 63, 86} <= template.filled
    assert template.volumes_ml[5] == pytest.approx(1799.3, abs=1)  # by its SOURCE.md
    assert template.volumes_ml[1] == pytest.approx(252.4, abs=1)
    assert 200 < template.volumes_ml[6] < 600  # the stomach that was filled in
