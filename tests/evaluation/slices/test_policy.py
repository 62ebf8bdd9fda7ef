"""Which slices a policy sends, how they look, and whether a lesion is on one of them."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image as Picture

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.slices.policy import POLICIES, find_policy
from tumorchain_jax.evaluation.slices.subject import make_request
from tumorchain_jax.evaluation.slices.visible import is_visible, not_answerable
from tumorchain_jax.llm.request import Image
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.scan.volume import Volume

EVEN, CENTER, THREE = (
    POLICIES[name] for name in ("axial-16-even", "axial-center-1", "three-planes")
)


def upright(voxels: np.ndarray, mm: tuple[float, float, float] = (1, 1, 1)) -> Volume:
    return Volume(voxels, np.diag([*mm, 1.0]))


def pictures(parts: tuple) -> list[np.ndarray]:
    files = [part.data for part in parts if isinstance(part, Image)]
    return [np.asarray(Picture.open(io.BytesIO(file))) for file in files]


def test_slices_are_spread_from_the_top_to_the_bottom() -> None:
    indices = [cut.index for cut in EVEN.cuts((64, 8, 8))]
    assert indices == [61 - 4 * number for number in range(16)]
    assert [cut.index for cut in CENTER.cuts((65, 8, 8))] == [32]
    assert [(cut.plane, cut.index) for cut in THREE.cuts((65, 33, 17))] == [
        ("axial", 32), ("coronal", 16), ("sagittal", 8),
    ]  # fmt: skip


def test_pictures_are_turned_as_radiologists_see_them() -> None:
    voxels = np.full((9, 9, 9), -1000, np.float32)
    voxels[8, 4, 4] = 240  # the patient's right
    voxels[4, 8, 4] = 240  # front
    voxels[4, 4, 8] = 240  # top
    for policy in (THREE,):
        axial, coronal, sagittal = pictures(policy.parts(upright(voxels)))
        assert axial[4, 0] == axial[0, 4] == 255
        assert coronal[4, 0] == coronal[0, 4] == 255
        assert sagittal[4, 0] == sagittal[0, 4] == 255
        assert [picture.astype(int).sum() for picture in (axial, coronal, sagittal)] == [510] * 3


def test_window_is_the_stated_one() -> None:
    voxels = np.zeros((5, 5, 1), np.float32)
    voxels[:, 0, 0] = (-1000, -160, 40, 240, 3000)
    (axial,) = pictures(CENTER.parts(upright(voxels)))
    assert axial.dtype == np.uint8
    assert axial[-1].tolist() == [255, 255, 128, 0, 0]


def test_pixels_are_square_in_millimetres() -> None:
    voxels = np.zeros((20, 20, 10), np.float32)
    axial, coronal, _ = pictures(THREE.parts(upright(voxels, (1, 1, 5))))
    assert axial.shape == (20, 20)
    assert coronal.shape == (50, 20)
    large = np.zeros((1024, 512, 3), np.float32)
    (axial,) = pictures(CENTER.parts(upright(large, (0.5, 0.5, 1))))
    assert axial.shape == (256, 512)


def test_versions_have_hashes_of_their_own() -> None:
    hashes = {policy.sha256 for policy in POLICIES.values()}
    assert len(hashes | {replace(EVEN, width=350.0).sha256, replace(EVEN, version=2).sha256}) == 5
    with pytest.raises(InputError, match="one of axial-16-even"):
        find_policy("axial-17")


@pytest.fixture(scope="module")
def patient() -> Patient:
    """A patient of seed 3 or later who has a tumour, its maps replaced by hand-made ones."""
    found = next(p for p in map(make_patient, range(3, 30)) if len(p.lesions) == 1)
    shape = (8, 8, 64)
    lesions, others = np.zeros((2, *shape), np.uint8)
    lesions[2:4, 2:4, 40] = 1
    affine = np.eye(4)
    return replace(
        found,
        ct=Volume(np.zeros(shape, np.float32), affine),
        labels=Volume(np.full(shape, found.lesions[0].organ, np.uint8), affine),
        lesion_map=Volume(lesions, affine),
        other_map=Volume(others, affine),
    )


def test_lesion_is_visible_on_the_slices_that_cut_it(patient: Patient) -> None:
    records = {r.subtask: r for r in patient_records(patient, 0, ())}
    elsewhere = replace(records["shape"], subtask="metastasis")
    shown = EVEN.cuts((64, 8, 8))
    assert 40 not in {cut.index for cut in shown}
    for height, expected in ((40, False), (41, True)):
        lesions = np.zeros((8, 8, 64), np.uint8)
        lesions[2:4, 2:4, height] = 1
        ill = replace(patient, lesion_map=Volume(lesions, np.eye(4)))
        for subtask in ("shape", "segment_localization", "count", "cot_report", "tumor"):
            assert is_visible(ill, records[subtask], shown) is expected
        assert is_visible(ill, elsewhere, shown) is None  # none is there
    healthy = replace(patient, lesions=())
    assert is_visible(healthy, records["cot_report"], shown) is None


def test_what_needs_three_dimensions_is_marked(patient: Patient) -> None:
    records = {r.subtask: r for r in patient_records(patient, 0, ())}
    marked = {name for name, record in records.items() if not_answerable(record, EVEN)}
    assert marked == {"count", "tumor", "node", "cot_report"}
    height = replace(records["shape"], subtask="organ_position")
    assert not_answerable(height, CENTER)
    assert not not_answerable(height, EVEN)
    assert not not_answerable(height, THREE)


def test_pictures_travel_as_data_urls(patient: Patient) -> None:
    record = patient_records(patient, 0, ())[0]
    request = make_request(CENTER.parts(patient.ct), CENTER, record)
    parts = request.messages[1].to_json()["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    kind, _, data = parts[1]["image_url"]["url"].partition(",")
    assert kind == "data:image/png;base64"
    assert Picture.open(io.BytesIO(base64.b64decode(data))).mode == "L"
    assert "window with\ncentre 40 HU and width 400 HU" in str(request.messages[0].content)
