"""The Segmentation Expert: a digital patient's masks measured, and reports held against them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import PANCREAS, display_name
from tumorchain_jax.engine.agents.against_masks import contradictions
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.segmenter import measure, measure_files
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.volume import Volume


@cache
def patient() -> tuple[Patient, tuple[Fact, ...]]:
    made = make_patient(11)
    assert made.lesions[0].organ == PANCREAS
    return made, measure("c", made.ct, made.labels, made.lesion_map)


def values(facts: tuple[Fact, ...], organ: str, attribute: str) -> list[str]:
    return [f.value for f in facts if f.organ == organ and f.attribute == attribute]


def test_organs_are_measured() -> None:
    made, facts = patient()
    voxel = np.prod(made.labels.spacing) / 1000
    mask = made.labels.voxels == 5
    assert float(values(facts, "liver", "volume")[0]) == pytest.approx(mask.sum() * voxel, abs=0.1)
    mean = made.ct.voxels[mask].mean()
    assert float(values(facts, "liver", "mean")[0]) == pytest.approx(mean, abs=0.6)
    in_mm, fractions = values(facts, "liver", "box")
    points = np.argwhere(mask) @ made.labels.affine[:3, :3].T + made.labels.affine[:3, 3]
    half = np.array(made.labels.spacing).max() / 2
    box = np.array([float(mm) for mm in in_mm.split(", ")])
    assert np.abs(box - [*points.min(0), *points.max(0)]).max() <= half + 0.6
    shares = [float(share) for share in fractions.split(", ")]
    assert all(0 <= low < high <= 1 for low, high in zip(shares[:3], shares[3:], strict=True))
    # The liver lies on the right, which is where x begins.
    assert shares[2] + shares[5] < 1
    assert {fact.source.kind for fact in facts} == {"mask"}


def test_lesions_are_measured() -> None:
    made, facts = patient()
    organ = display_name(PANCREAS)
    assert values(facts, organ, "count") == [str(len(made.lesions))]
    found = {f.lesion: f for f in facts if f.organ == organ and f.attribute == "finding"}
    sizes = {f.lesion: float(f.value) for f in facts if f.organ == organ and f.attribute == "size"}
    for number, lesion in enumerate(made.lesions, 1):
        assert found[number].part == lesion.segment
        assert sizes[number] == pytest.approx(lesion.diameter_mm, abs=1)


def test_a_scan_turned_round_is_measured_alike() -> None:
    made, facts = patient()
    turned = [
        Volume(np.flip(v.voxels, 0).copy(), v.affine @ np.diag([-1, 1, 1, 1]) @ shift(v))
        for v in (made.ct, made.labels, made.lesion_map)
    ]
    again = measure("c", *turned)
    what = [(f.organ, f.part, f.lesion, f.attribute, f.value) for f in facts]
    assert [(f.organ, f.part, f.lesion, f.attribute, f.value) for f in again] == what


def shift(volume: Volume) -> np.ndarray:
    """Move the origin to the other end of the first axis."""
    move = np.eye(4)
    move[0, 3] = -(volume.shape[0] - 1)
    return move


def test_files(tmp_path: Path) -> None:
    made, facts = patient()
    for name, volume in (("ct", made.ct), ("labels", made.labels), ("lesions", made.lesion_map)):
        nibabel.save(nibabel.Nifti1Image(volume.voxels, volume.affine), tmp_path / f"{name}.nii")
    names = [tmp_path / f"{name}.nii" for name in ("ct", "labels", "lesions")]
    assert [f.value for f in measure_files("c", *names)] == [f.value for f in facts]
    by_machine = measure_files("c", names[0], segmenter=lambda ct: made.labels)
    assert by_machine == measure("c", made.ct, made.labels)
    with pytest.raises(ValueError, match="label map or a segmenter"):
        measure_files("c", names[0])


def report(text: str) -> tuple[Case, tuple[str, ...]]:
    _, facts = patient()
    case = Case("c", "p", ("s",), (Document("radiology", text),), facts)
    result = process(case)
    assert verify(result, case) == ()
    positions = [r for r in result.records if r.subtask == "organ_position"]
    assert len(positions) > 4
    return case, result.discordant


def test_reports_are_held_against_masks() -> None:
    made, _ = patient()
    largest = max(made.lesions, key=lambda lesion: lesion.diameter_mm)
    size, part = round(largest.diameter_mm), largest.segment
    lesions = "".join(
        f"There is a {round(each.diameter_mm)} mm mass in the {each.segment}. "
        for each in made.lesions
    )
    assert report(lesions + "The liver is normal.")[1] == ()
    other = "tail" if "head" in part else "head"
    _, wrong = report(f"There is a {size} mm mass in the {other} of the pancreas.")
    assert any("the report's lesion is in" in line for line in wrong)
    _, wrong = report(f"There is a {size * 3} mm mass in the {part}.")
    assert any("largest lesion is" in line for line in wrong)
    _, wrong = report("There is a 30 mm mass in segment VII of the liver. The pancreas is normal.")
    assert "liver: a lesion by the report, none by the masks" in wrong
    assert "pancreas: a lesion by the masks, none by the report" in wrong


def test_an_organ_that_the_masks_do_not_show_is_flagged() -> None:
    _, facts = patient()
    cyst = replace(
        facts[0], organ="left kidney", attribute="finding", value="cyst", unit="",
        source=replace(facts[0].source, kind="radiology", quote="cyst"),
    )  # fmt: skip
    there = [f for f in facts if f.organ != "left kidney"]
    line = "left kidney: the report finds cyst in it, the masks do not show it"
    assert line in contradictions((*there, cyst))
    assert line not in contradictions((*facts, cyst))
