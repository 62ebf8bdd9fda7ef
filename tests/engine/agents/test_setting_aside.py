"""Reports of which not all may be made: contradictions, corrections, benign lesions."""

import re

import pytest

from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.case import Case, CaseResult, Document
from tumorchain_jax.engine.measure.cases import text_case

TNM = {"tumor", "node", "metastasis"}


def made(text: str, **patient: object) -> CaseResult:
    documents = (Document("radiology", text),)
    case = Case("c", "p", ("s",), documents, **patient) if patient else text_case(text, "en")
    result = process(case)
    assert verify(result, case) == ()
    return result


def reasons(result: CaseResult) -> str:
    return " ".join(f"{each.organ}: {each.reason}" for each in result.rejected)


def answers(result: CaseResult) -> set[tuple[str, str]]:
    return {(record.subtask, record.answer) for record in result.records}


@pytest.mark.parametrize(
    "text",
    [
        "Findings: 3 cm mass in IVb. Spleen normal. Liver: No mass.",
        "Findings: 3 cm mass in segment IVb of the liver. Impression: No liver mass.",
        "Findings: tumour of the liver in segment II. The liver is free of tumour.",
        "Findings: Metastasis in segment VI. It is a haemangioma.",
    ],
)
def test_an_organ_of_which_a_report_says_two_things_is_set_aside(text: str) -> None:
    result = made(text)
    assert re.search("liver: the report contradicts itself", reasons(result))
    assert not [r for r in result.records if r.organ or "liver" in r.answer]
    assert not {"which organ"} & {r.question for r in result.records}


def test_signs_against_the_conclusion_are_discordant() -> None:
    text = (
        "Findings: 3 cm lesion in segment VIII with arterial phase hyperenhancement and washout. "
        "Impression: hepatic haemangioma."
    )
    result = made(text)
    assert "discordant: arterial phase hyperenhancement and washout" in reasons(result)
    assert not result.records
    assert made(text.replace("haemangioma", "lesion; HCC")).records


@pytest.mark.parametrize(
    "text",
    [
        "Findings: 4 cm mass in the gastric antrum. Addendum: it is in the body, not the antrum.",
        "4 cm mass in the gastric antrum, correction, 2 cm mass.",
    ],
)
def test_a_corrected_report_is_set_aside(text: str) -> None:
    result = made(text)
    assert "corrected text is not understood" in reasons(result)
    assert not result.records


def test_dictation_without_punctuation_is_set_aside() -> None:
    text = "liver is enlarged there is a four centimeter mass in segment eight no other lesion " * 4
    result = made(text)
    assert "without punctuation" in reasons(result)
    assert not result.records
    assert not made("Liver normal\nSpleen normal\nStomach normal\nColon normal\n" * 12).rejected


@pytest.mark.parametrize(
    ("patient", "reason"),
    [
        ({"sex": "male"}, "the list says male, the report female"),
        ({"age": 45}, "the list says age 45, the report 63"),
        ({"sex": "female", "age": 62}, ""),
        ({"sex": "female", "age": None}, ""),
    ],
)
def test_a_report_of_another_patient_is_set_aside(patient: dict, reason: str) -> None:
    result = made("63-year-old woman. Findings: 3 cm mass in the cecum.", **patient)
    assert reason in reasons(result)
    assert bool(result.records) != bool(reason)


@pytest.mark.parametrize(
    "text",
    [
        "Liver: cyst of 2 cm in segment II, haemangioma in segment VII. No metastases. No enlarged "
        "lymph nodes. Impression: Benign liver lesions.",
        "Findings: 3 cm lesion in segment V of the liver. No metastases. No enlarged lymph nodes. "
        "Impression: Focal nodular hyperplasia of the liver.",
        "Liver: 2 cm lesion in segment VI, likely haemangioma. No metastases. No enlarged nodes.",
    ],
)
def test_an_organ_with_benign_lesions_alone_has_no_stage(text: str) -> None:
    staged = [(r.subtask, r.answer) for r in made(text).records if r.subtask in TNM]
    assert staged == []


def test_two_primaries_leave_open_whose_spread_it_is() -> None:
    text = (
        "Tumour of the head of the pancreas, 3 cm. Tumour of the sigmoid colon, 4 cm. Liver "
        "metastases. Two enlarged lymph nodes."
    )
    assert not {"node", "metastasis"} & {r.subtask for r in made(text).records}


def test_what_is_not_counted_is_not_asked_for_its_number() -> None:
    result = made("Multiple metastases in the right lobe of the liver, up to 3 cm. Gastric mass.")
    assert not [r for r in result.records if r.subtask == "count" and "liver" in r.question]
    steps = {step.text for trace in result.traces for step in trace.steps}
    assert any("several metastases" in text for text in steps)


@pytest.mark.parametrize(
    "text",
    ["3 cm mass. Liver: no mass.", "Liver, stomach and colon are normal. 5 cm mass in the pelvis."],
)
def test_a_mass_without_a_place_leaves_the_whole_scan_open(text: str) -> None:
    asked = {re.sub(r"\W+", " ", r.question) for r in made(text).records if r.organ == 0}
    assert not asked


def test_records_are_in_plain_english() -> None:
    text = (
        "Findings: Ill-defined, irregular mass of 3 cm in segment VIII of the liver with washout "
        "and necrosis. One enlarged lymph node. Impression: Hepatocellular carcinoma."
    )
    result = made(text)
    said = " ".join([r.question + " " + r.rounds[-1].text for r in result.records])
    assert "washout" in said
    assert not re.search(r"it is (?:a )?washout|\ba (?=[aeiou])|shows a lymph\b", said)
