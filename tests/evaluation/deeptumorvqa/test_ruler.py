"""Measurements and thresholds against figures worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import Lesion, Measured, measure
from tumorchain_jax.evaluation.deeptumorvqa.ruler.rules import RULES, answer
from tumorchain_jax.evaluation.deeptumorvqa.ruler.search import find_lesions
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES
from tumorchain_jax.scan.volume import Volume

AFFINE = np.diag([-2.0, -2.0, 5.0, 1.0])  # LPS-like axes; slices along the last
SHAPE = (60, 60, 20)


def boxes(**hu: float) -> tuple[Volume, Volume, Volume]:
    """A kidney of 20 x 20 x 10 voxels with a block of 6 x 6 x 4 voxels in it, beside an aorta."""
    image = np.full(SHAPE, -100, np.float32)
    labels, lesions = np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8)
    labels[10:30, 10:30, 5:15], image[10:30, 10:30, 5:15] = 3, hu.get("kidney", 100.0)
    labels[40:46, 10:16, :], image[40:46, 10:16, :] = 52, 150
    lesions[12:18, 12:18, 6:10] = 1
    image[lesions == 1] = hu.get("lesion", 30.0)
    return Volume(image, AFFINE), Volume(labels, AFFINE), Volume(lesions, AFFINE)


def test_measurements() -> None:
    found = measure(*boxes())
    assert found.volumes_cm3[3] == pytest.approx(4000 * 0.02)
    assert found.hu[3] == pytest.approx(100)
    (lesion,) = found.lesions
    assert (lesion.organ, lesion.kind, lesion.segment) == (3, "cyst", "")
    assert lesion.volume_cm3 == pytest.approx(144 * 0.02)
    assert lesion.hu == pytest.approx(30)
    # From corner to corner: 10, 10 and 15 mm between the middles (20.6 mm), and one voxel (3.9 mm).
    assert lesion.diameter_cm == pytest.approx(2.46, rel=0.02)
    assert lesion.slice_percent == pytest.approx(100 * 7 / 20)  # the lowest of slices 6 to 9
    # 40 - 17 = 23 voxels of 2 mm between centres.
    assert lesion.neighbours == {52: pytest.approx(46.0)}
    assert lesion.vessel_degrees == 0


def test_turned_scan_gives_the_same() -> None:
    turned = [
        Volume(each.voxels.transpose(2, 0, 1)[:, ::-1], AFFINE[:, [2, 0, 1, 3]] * [1, -1, 1, 1])
        for each in boxes()
    ]
    for each in turned:
        each.affine[:3, 3] = AFFINE[:3, 0] * (SHAPE[0] - 1)
    assert measure(*turned).lesions[0].slice_percent == measure(*boxes()).lesions[0].slice_percent


def test_degrees_around_a_vessel() -> None:
    image, labels, lesions = (each.voxels for each in boxes())
    labels[10:30, 10:30, 5:15] = 7  # a pancreas
    labels[39:46, 10:16, 5:8] = np.where(labels[39:46, 10:16, 5:8], 52, 7)
    lesions[39, 10:16, 5:8] = 2
    lesions[34:39, 10:16, 5:8], labels[34:39, 10:16, 5:8] = 2, 7
    found = measure(*(Volume(each, AFFINE) for each in (image, labels, lesions)))
    touching = next(each for each in found.lesions if each.vessel_degrees)
    assert touching.vessel_degrees == pytest.approx(
        360 * 6 / 20
    )  # a side of 6 of 20 outline voxels


def lesion(organ: int, kind: str = "tumor", **values: float) -> Lesion:
    plain = {"volume_cm3": 1.0, "diameter_cm": 1.0, "hu": 50.0, "slice_percent": 50.0}
    return Lesion(organ, kind, **{**plain, **values})


HEALTHY = Measured({1: 200.0, 2: 200.0, 3: 150.0, 5: 1500.0, 7: 80.0, 20: 400.0},
                   {1: 120.0, 2: 150.0, 3: 150.0, 5: 110.0, 7: 90.0, 20: 50.0}, ())  # fmt: skip


def patient(*lesions: Lesion, **changes: dict[int, float]) -> Measured:
    return Measured(
        HEALTHY.volumes_cm3 | changes.get("cm3", {}), HEALTHY.hu | changes.get("hu", {}), lesions
    )


def test_every_subtype_has_a_rule() -> None:
    assert set(RULES) == set(SUBTYPES)


@pytest.mark.parametrize(
    ("cm3", "grade"), [(314.5, "Normal"), (314.6, "Mild"), (500.1, "Moderate"), (801.0, "Severe")]
)
def test_spleen(cm3: float, grade: str) -> None:
    found = patient(cm3={1: cm3})
    assert answer(found, "splenomegaly grading") == grade
    assert answer(found, "splenomegaly detection") == ("No" if grade == "Normal" else "Yes")


@pytest.mark.parametrize(
    ("hu", "grade"),
    [(58.0, "0"), (57.6, "0"), (57.4, "1"), (51.0, "1"), (50.0, "2"), (39.0, "2"), (38.0, "3")],
)
def test_steatosis_of_the_liver(hu: float, grade: str) -> None:
    assert answer(patient(hu={5: hu}), "hepatic steatosis grading") == f"Grade {grade}"


@pytest.mark.parametrize(
    ("found", "subtype", "about", "expected"),
    [
        (patient(hu={5: 119.0}), "fatty liver", (), "Fatty"),
        (patient(hu={5: 120.0}), "fatty liver", (), "Normal"),
        (patient(hu={7: 83.0}), "pancreatic steatosis", (), "Yes"),
        (patient(hu={7: 84.0}), "pancreatic steatosis", (), "No"),
        (patient(cm3={1: 400.0}), "portal hypertension assessment", (), "Yes"),
        (patient(cm3={1: 400.0, 5: 1801.0}), "portal hypertension assessment", (), "No"),
        (patient(cm3={5: 1801.0}), "organ enlargement", ("liver",), "Yes"),
        (patient(), "organ enlargement", ("liver",), "No"),
        (patient(), "organ aggregation", ("right kidney", "left kidney"), 350.0),
        (patient(), "organ HU ratio", ("pancreas", "spleen"), 0.75),
        (patient(), "kidney volume comparison", (), "Right"),
        (patient(cm3={3: 185.0}), "kidney volume comparison", (), "About equal"),
        (patient(), "lesion counting", ("colon",), 0.0),
        (patient(), "lesion volume measurement", ("liver",), None),
        (patient(lesion(7, "PDAC", diameter_cm=2.0)), "pancreatic tumor staging", (), "T1"),
        (patient(lesion(7, "PDAC", diameter_cm=4.1)), "pancreatic tumor staging", (), "T3"),
        (patient(lesion(7, "PNET", vessel_degrees=181.0)), "pancreatic tumor staging", (), "T4"),
        (patient(lesion(7, "PNET")), "pancreatic lesion resectability", (), "Resectable"),
        (patient(lesion(7, "PNET", vessel_degrees=180.0)), "pancreatic lesion resectability", (),
         "Borderline resectable"),
        (patient(lesion(7, "cyst")), "pancreatic lesion resectability", (), None),
        (patient(lesion(7, "cyst", hu=14.5)), "pseudocyst determination", (), "No"),
        (patient(lesion(7, "cyst", hu=14.6)), "pseudocyst determination", (), "Yes"),
        (patient(lesion(7, "cyst", volume_cm3=3.1)), "pancreatic cyst resectability", (), "Yes"),
        (patient(lesion(7, "cyst", diameter_cm=3.0)), "pancreatic cyst resectability", (), "No"),
        (patient(lesion(2, hu=34.9)), "renal mass characterization", (), "Solid"),
        (patient(lesion(2, hu=34.8)), "renal mass characterization", (), "Cystic"),
        (patient(lesion(5, hu=99.9)), "largest lesion attenuation", ("liver",), "Hypoattenuating"),
        (patient(lesion(5, hu=100.0)), "largest lesion attenuation", ("liver",), "Isoattenuating"),
        (patient(lesion(5, hu=60.0)), "tumor organ HU difference", ("liver",), -50.0),
        (patient(lesion(5, volume_cm3=30.0)), "tumor burden percentage", ("liver",), 2.0),
        (patient(lesion(2, volume_cm3=3.0), lesion(3)), "bilateral kidney asymmetry", (),
         "Right kidney"),
        (patient(lesion(5), lesion(20, volume_cm3=2.0)), "multi-organ lesion burden comparison",
         (), "Colon"),
    ],
)  # fmt: skip
def test_thresholds(
    found: Measured, subtype: str, about: Sequence[str], expected: str | float | None
) -> None:
    assert answer(found, subtype, about) == expected


def in_liver(*segments: str) -> Measured:
    lesions = [Lesion(5, "tumor", 1.0, 1.0, 50.0, 50.0, segment) for segment in segments]
    return patient(*lesions)


@pytest.mark.parametrize(
    ("segments", "spread", "most"),
    [
        ("VVV VI", "Highly clustered", "V"),
        ("VV VI VII", "Somewhat clustered", "V"),
        ("V VI VII VIII", "Widely distributed", None),
    ],
)
def test_spread_over_the_liver(segments: str, spread: str, most: str | None) -> None:
    names = ["V"] * (segments.split()[0].count("V")) + segments.split()[1:]
    found = in_liver(*(f"liver segment {name}" for name in names))
    assert answer(found, "liver lesion clustering") == spread
    expected = most and f"Liver segment {most}"
    assert answer(found, "inter-segment comparison") == expected
    assert answer(found, "lesion count by location", ("liver segment VI",)) == 1.0


def test_outlier_needs_three_lesions() -> None:
    large = lesion(5, volume_cm3=3.0)
    assert answer(patient(large, lesion(5), lesion(5)), "lesion outlier", ("liver",)) == "Yes"
    assert answer(patient(large, lesion(5)), "lesion outlier", ("liver",)) is None
    near = lesion(5, volume_cm3=1.1)
    assert answer(patient(large, near, near), "lesion outlier", ("liver",)) == "No"


def test_lesions_are_found_by_hu() -> None:
    ct, labels, lesions = boxes(lesion=10.0)
    noise = np.random.default_rng(0).normal(0, 8, SHAPE).astype(np.float32)
    found = find_lesions(Volume(ct.voxels + noise, AFFINE), labels)
    assert found.voxels.max() == 1
    overlap = np.count_nonzero(found.voxels & lesions.voxels)
    assert 2 * overlap / (np.count_nonzero(found.voxels) + 144) > 0.7
    assert not find_lesions(Volume(noise, AFFINE), labels).voxels.any()
