"""Wordings that a reader is easily misled by: what a report must not be taken to say."""

import re

import pytest

from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.text.conflicts import conflicts
from tumorchain_jax.engine.text.corrections import find_correction
from tumorchain_jax.engine.text.extract import extract


def told(text: str) -> set[str]:
    """Write the facts of a report: `finding=mass@liver`; -absent, ?doubtful, <of an earlier time.

    Numbers of lesions are left out; places are parts where they are known.
    """
    lines = set()
    for fact in extract(Case("c", "p", ("s",), (Document("radiology", text),))):
        sign = "<" if fact.time != "current" else "-" if fact.polarity == "absent" else ""
        sign += "" if fact.certainty == "definite" else "?"
        place = fact.part or fact.organ
        lines.add(f"{sign}{fact.attribute}={fact.value}@{place}")
    return lines


def current(text: str, attribute: str = "finding") -> set[str]:
    """Return `value@place` of what is there for sure."""
    return {line.split("=", 1)[1] for line in told(text) if line.startswith(f"{attribute}=")}


REVISED = [
    "Lesion in segment VI previously described as metastasis represents a benign haemangioma.",
    "The segment VI lesion, initially thought to be a metastasis, is a haemangioma.",
    "What was called a metastasis on the outside CT in segment VI is a haemangioma.",
    "The metastasis reported in segment VI last year turns out to be a haemangioma.",
    "The supposed metastasis in segment VI is in fact a haemangioma.",
    "Segment VI lesion: formerly read as metastasis, now regarded as haemangioma.",
    "The suspected metastasis in segment VI could not be confirmed; haemangioma.",
    "Die zuvor als Metastase beschriebene Läsion in Segment VI entspricht einem Hämangiom.",
    "Die als Metastase gedeutete Läsion in Segment VI erweist sich als Hämangiom.",
]


@pytest.mark.parametrize("text", REVISED)
def test_a_reading_that_is_revised_is_no_finding(text: str) -> None:
    assert not any("metastasis" in value for value in current(text))
    assert not any(line.startswith("?finding=metastasis") for line in told(text))


@pytest.mark.parametrize(
    "text",
    [
        "The previously described metastasis in segment VI is unchanged.",
        "Metastasis in segment VI, larger than on the previous examination.",
        "Bekannte Metastase in Segment VI, unverändert.",
    ],
)
def test_a_finding_that_persists_is_one(text: str) -> None:
    assert current(text) == {"metastasis@liver segment VI"}


@pytest.mark.parametrize(
    "text",
    [
        "Tumour not seen today although colonoscopy showed a sigmoid tumour.",
        "Colonoscopy demonstrated a tumour of the sigmoid colon, which CT does not show.",
        "A sigmoid tumour was found at endoscopy. No correlate.",
        "The mass of the sigmoid colon seen on MRI is not visible.",
        "In der Koloskopie zeigte sich ein Tumor im Sigma, im CT nicht abgrenzbar.",
    ],
)
def test_what_another_examination_shows_is_no_finding_of_this_one(text: str) -> None:
    assert current(text) == set()
    assert current(text, "impression") <= {"no tumour@sigmoid colon", "no tumour@colon"}


COUNTS = {
    "Gastric mass. Two of the three perigastric nodes are enlarged.": "2",
    "Gastric mass. 2 of 3 perigastric nodes are enlarged.": "2",
    "Gastric mass. Of five perigastric nodes, one is enlarged.": "",
    "Gastric mass. Three of the perigastric nodes are enlarged.": "3",
    "Gastric mass. At least four enlarged perigastric nodes.": "",
    "Gastric mass. Two or three enlarged perigastric nodes.": "",
    "Magentumor. Zwei der drei perigastrischen Lymphknoten sind vergrößert.": "2",
    "Magentumor. 1 von 4 perigastrischen Lymphknoten ist vergrößert.": "1",
    "Gastric mass. Two of the three perigastric nodes are calcified.": "",
}


@pytest.mark.parametrize("text", COUNTS)
def test_a_share_of_nodes_is_not_their_number(text: str) -> None:
    nodes = {value.split("@")[0] for value in current(text, "nodes")}
    assert nodes == ({COUNTS[text]} if COUNTS[text] else set())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Innumerable liver metastases.", "several"),
        ("Multiple metastases in the liver, the largest of 3 cm in segment VII.", "several"),
        ("Liver: several metastases. One in segment II of 12 mm, one in segment V.", "several"),
        ("Metastases in the liver.", "several"),
        ("More than ten liver metastases.", "several"),
        ("Two of the liver metastases have grown.", "several"),
        ("Zahlreiche Metastasen in der Leber.", "several"),
        ("Three liver metastases.", "3"),
        ("A liver metastasis.", ""),
        ("Liver metastases of 12 and 14 mm.", ""),
    ],
)
def test_what_is_not_counted_has_no_number(text: str, count: str) -> None:
    counts = {value.split("@")[0] for value in current(text, "count")}
    assert counts == ({count} if count else set())


@pytest.mark.parametrize(
    "text",
    [
        "Findings: 4 cm mass in the gastric antrum. ADDENDUM: the lesion is in the body, not in "
        "the antrum.",
        "Mass in the left kidney. Correction: right kidney.",
        "Mass of 3 cm in the liver. The size should read 3 mm.",
        "Cyst in the left kidney, I mean the right kidney.",
        "Mass in segment II, scratch that, segment III.",
        "Addendum: on review the haemangioma is a metastasis.",
        "The left side was dictated in error.",
        "Tumor im Antrum. Nachtrag: nicht im Antrum, sondern im Korpus.",
        "Korrektur: rechte Niere.",
    ],
)
def test_a_correction_is_seen(text: str) -> None:
    assert find_correction(text)


@pytest.mark.parametrize(
    "text",
    [
        "Addendum: the findings were discussed with the referring team by telephone.",
        "Corrected for body weight. Mass in the liver.",
        "Surgical correction of a hernia. No mass.",
        "The mass is not in the antrum.",
    ],
)
def test_not_every_addition_is_a_correction(text: str) -> None:
    assert find_correction(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Gastric mass in the antrum. Liver ?met seg 5 12 mm vs. cyst.",
        "Gastric mass in the antrum. Liver: query metastasis segment 5, 12 mm, vs cyst.",
        "Gastric mass in the antrum. In liver segment V a 12 mm lesion, metastasis versus cyst.",
    ],
)
def test_a_finding_stays_in_the_organ_that_its_sentence_names(text: str) -> None:
    lines = {line for line in told(text) if "gastric antrum" in line}
    assert lines == {"finding=mass@gastric antrum"}
    doubtful = {line for line in told(text) if line.endswith("@liver segment V")}
    assert {"?finding=metastasis@liver segment V", "?finding=cyst@liver segment V"} <= doubtful


@pytest.mark.parametrize(
    "text",
    [
        "Lesion in segment VI, no washout, likely haemangioma.",
        "Lesion in segment VI without washout and most likely a haemangioma.",
        "Lesion in segment VI. No washout; probably haemangioma.",
        "Lesion in segment VI, no washout - suggestive of haemangioma.",
        "Lesion in segment VI, likely haemangioma, washout not seen.",
        "Läsion in Segment VI, kein Washout, am ehesten Hämangiom.",
    ],
)
def test_a_judgement_after_a_denial_is_not_denied(text: str) -> None:
    lines = told(text)
    assert "?finding=haemangioma@liver segment VI" in lines
    assert not any(line.startswith("-") and "haemangioma" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("2 cm LEFT adrenal nodule.", {"left adrenal gland"}),
        ("Adrenals: 2 cm LEFT nodule.", {"left adrenal gland"}),
        ("Adrenal glands: nodule on the left, right normal.", {"left adrenal gland"}),
        ("Adrenals: nodule of 14 mm.", {"adrenal glands"}),
        ("Kidneys: right-sided mass of 3 cm.", {"right kidney"}),
        ("Renal mass of 2 cm.", {"kidneys"}),
        ("Masses in both kidneys.", {"left kidney", "right kidney"}),
        ("Nebennieren: links ein Knoten von 2 cm.", {"left adrenal gland"}),
    ],
)
def test_a_finding_is_on_the_side_that_is_said(text: str, places: set[str]) -> None:
    assert current(text) == {f"mass@{place}" for place in places}


@pytest.mark.parametrize("text", ["No adrenal mass.", "Adrenals: no nodule."])
def test_what_is_denied_without_a_side_is_denied_on_both(text: str) -> None:
    assert told(text) == {f"-finding=mass@{side} adrenal gland" for side in ("left", "right")}


def test_a_line_that_ends_within_a_phrase_ends_no_sentence() -> None:
    assert current("Findings: A 3 cm mass in the\nHead of the pancreas.") == {
        "mass@head of the pancreas"
    }
    lines = told("Findings:\nNo mass of the liver or\nPancreas. No lesion of\nLeft Kidney.")
    assert lines == {f"-finding=mass@{organ}" for organ in ("liver", "pancreas", "left kidney")}


@pytest.mark.parametrize(
    "text",
    [
        "No pancreatic mass, although the tail is obscured by bowel gas.",
        "The pancreas is normal; the tail is not assessable.",
        "Pancreas: unremarkable. The tail is poorly visualised.",
        "Limited evaluation of the pancreas. No pancreatic mass.",
        "No mass in the pancreas. The pancreatic tail cannot be assessed due to artefacts.",
        "Keine Raumforderung im Pankreas, der Schwanz ist nicht beurteilbar.",
        "Pankreas unauffällig, Schwanz überlagert.",
    ],
)
def test_what_cannot_be_judged_is_not_denied(text: str) -> None:
    assert not any(line.startswith("-finding") for line in told(text))
    assert not any("tail" in line for line in told(text))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Cyst in segment IV. Mild biliary dilatation.", "liver"),
        ("Cyst in segment IV, bile ducts dilated.", "liver"),
        ("Mass in the gastric antrum. The common bile duct is dilated.", "liver"),
        ("Haemangioma in segment II. The pancreatic duct is dilated.", "pancreas"),
    ],
)
def test_ducts_are_not_where_the_last_lesion_is(text: str, place: str) -> None:
    found = {line for line in told(text) if "ductal" in line}
    assert {line.split("@")[1] for line in found} <= {place, "pancreatic duct"}
    assert found


@pytest.mark.parametrize(
    "text",
    [
        "3 cm mass in IVb. Spleen normal. Liver: No mass.",
        "Findings: 3 cm mass in segment IVb. Impression: No liver mass.",
        "There is a 2 cm mass in VI. The liver is free of focal lesions and masses.",
        "Findings: 3 cm mass in the gastric antrum. Impression: The stomach is normal.",
        "Leber: Raumforderung von 3 cm in Segment IVb. Beurteilung: Leber unauffällig.",
    ],
)
def test_findings_against_a_denial_are_a_contradiction(text: str) -> None:
    facts = extract(Case("c", "p", ("s",), (Document("radiology", text),)))
    assert "polarity" in {conflict.reason for conflict in conflicts(facts)}


@pytest.mark.parametrize(
    "text",
    [
        "3 cm lesion in the right kidney. The lesion is a simple cyst.",
        "Lesion of 3 cm in the right kidney, consistent with a cyst.",
        "Findings: 3 cm lesion in the right kidney. Impression: Cyst of the right kidney.",
    ],
)
def test_a_lesion_that_is_a_cyst_is_no_mass(text: str) -> None:
    assert current(text) == {"cyst@right kidney"}
    assert current(text, "size") == {"30@right kidney"}


def test_a_size_stays_with_its_own_lesion() -> None:
    text = "Liver: cyst of 2 cm in segment II and haemangioma of 3 cm in segment VII."
    assert current(text, "size") == {"20@liver segment II", "30@liver segment VII"}
    assert current(text) == {"cyst@liver segment II", "haemangioma@liver segment VII"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mass in the liver? No.", "-finding=mass@liver"),
        ("Is there a mass in the liver?", "?finding=mass@liver"),
    ],
)
def test_a_question_is_no_finding(text: str, expected: str) -> None:
    assert told(text) == {expected}


def test_stages_are_no_segments() -> None:
    assert not any(re.search("segment", line) for line in told("Stage IVb disease. Liver mass."))


def test_a_conclusion_about_one_of_two_lesions_is_about_the_right_one() -> None:
    text = (
        "Findings: Lesion of 8 mm in segment VII, probably a cyst. New 15 mm lesion in segment "
        "IVa, suspicious for metastasis. Impression: New liver lesion suspicious for metastasis."
    )
    places = {line.split("@")[1] for line in told(text) if "metastasis" in line}
    assert places == {"liver segment IVa"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("The stomach is normal. 3 cm mass in the pelvis.", ""),
        ("The stomach is normal. Subcutaneous nodule of 1 cm.", ""),
        ("Liver, spleen and kidneys normal. Breast mass of 2 cm.", ""),
        ("The stomach is distended. 3 cm mass in the body.", "gastric body"),
    ],
)
def test_a_mass_elsewhere_is_not_in_the_organ_told_of_before(text: str, place: str) -> None:
    assert current(text) == {f"mass@{place}"}


@pytest.mark.parametrize(
    "text",
    [
        "CT after resection of the sigmoid colon for carcinoma. No recurrence.",
        "70 year old woman with sigmoid carcinoma, post sigmoid resection 2019.",
        "Follow-up of sigmoid carcinoma.",
        "Zustand nach Sigmaresektion bei Sigmakarzinom.",
    ],
)
def test_a_tumour_that_was_operated_on_is_of_the_past(text: str) -> None:
    assert current(text) | current(text, "impression") <= {"no tumour@colon", "no tumour@"}


def test_the_place_of_the_largest_is_not_that_of_all() -> None:
    text = "Liver: multiple lesions consistent with metastases, largest 4.2 cm in segment VIII."
    assert current(text) == {"metastasis@liver"}


@pytest.mark.parametrize(
    "text",
    [
        "Three hypodense lesions in the liver up to 2 cm, metastases.",
        "Two liver lesions: metastases.",
    ],
)
def test_a_name_at_the_end_is_what_the_lesions_are(text: str) -> None:
    assert current(text) == {"metastasis@liver"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("Mass of 6 cm in segments V and VIII of the liver.", {"mass@liver"}),
        ("Liver: mass of 6 cm with central scar. AFP normal.", {"mass@liver"}),
        ("Liver: 2 hypodense foci <5 mm.", {"mass@liver"}),
    ],
)
def test_a_lesion_over_two_parts_is_one(text: str, facts: set[str]) -> None:
    assert {value for value in current(text) if "mass" in value} == facts
    assert not any(line.startswith("-") for line in told(text))
    assert current(text, "size") <= {"60@liver"}


def test_findings_after_their_conclusion_are_about_the_same_lesion() -> None:
    text = (
        "IMPRESSION:\n1. 2.4 cm mass in the pancreatic body.\nFINDINGS:\nPancreas: 24 mm hypodense "
        "mass in the body."
    )
    facts = extract(Case("c", "p", ("s",), (Document("radiology", text),)))
    assert {fact.lesion for fact in facts} == {1}


@pytest.mark.parametrize(
    "text",
    [
        "Metastasis to the liver excluded by MRI.",
        "Drei Metastasen der Leber, davon eine in Segment IV.",
    ],
)
def test_what_is_of_one_or_of_another_examination_is_not_of_all(text: str) -> None:
    assert not any(line.startswith("-finding") or "segment" in line for line in told(text))
