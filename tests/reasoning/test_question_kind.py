"""What a question asks for, and what is an answer to it."""

import pytest

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.inference.analyzer import TASKS
from tumorchain_jax.phantoms import records
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.reasoning.question_kind import SUBTASK, question_kind
from tumorchain_jax.reasoning.question_scope import out_of_scope

KINDS = {
    "organ": (
        *records._POSITION,
        "Where is the lesion?",
        "Where is/are the mass located?",
        "What is the location of the mass?",
        "Which organ is affected?",
        "What is the largest organ in the picture?",
        "Could you tell me which organ the tumour is in?",
        "Please locate the tumour.",
        "In this CT, where is the cancer?",
        "Is there a lesion, and where?",
    ),
    "report": (*records._REPORT, "Describe this CT.", "Summarize the scan.", "Give an impression."),
    "yes/no": (
        "Is the liver normal?",
        "Do you see a tumour of the colon?",
        "In this scan, is there a mass?",
        "Any liver lesions?",
        "Is there a lesion or not?",
        "Can you see the kidneys",
    ),
    "text": (
        "Is the mass solid or cystic?",
        "What modality is this?",
        "What is wrong with the pancreas?",
        "Where is the mass located in relation to the left kidney?",
        "Where is the liver?",
    ),
    "count": ("How many lesions do you see?", "How many spleen lesions are there?"),
    "number": ("How big is the mass?", "What is the volume of the spleen in cm3?"),
    "segment": (
        "Which liver segment contains the lesion?",
        "Which part of the bowel is involved?",
        "Where is the mass in the liver?",
    ),
    "third": ("In which third of the scan does the liver lie?",),
    "stage": ("What is the TNM stage of the tumour?", "What stage is the cancer?"),
    "tumor": ("What is the T stage?", "T category?"),
    "node": ("What is the N category?",),
    "metastasis": ("Which M stage is it?",),
    "shape": ("What shape is the lesion?", "Describe the shape of the mass."),
    "boundary": ("How are the margins of the lesion?", "How well is the mass defined?"),
    "density": ("What density is the abnormality?", "How dense is the lesion?"),
    "others": ("What else does the lesion show?",),
}


@pytest.mark.parametrize(
    ("kind", "question"), [(kind, question) for kind, each in KINDS.items() for question in each]
)
def test_kind_of_ordinary_questions(kind: str, question: str) -> None:
    assert question_kind(question).kind == kind


@pytest.mark.parametrize("subtask", records._QUESTIONS)
def test_kind_of_the_questions_of_records(subtask: str) -> None:
    for wording in records._QUESTIONS[subtask]:
        for organ in DIGESTIVE:
            for lesion in ("lesion", "largest lesion"):
                question = wording.format(organ=display_name(organ), lesion=lesion)
                assert SUBTASK[question_kind(question).kind] == subtask


def test_kind_of_the_ready_made_questions() -> None:
    assert {name: question_kind(text).kind for name, text in TASKS.items()} == {
        "position": "organ",
        "report": "report",
    }
    assert set(SUBTASK.values()) == {name for names in SUBTASKS.values() for name in names}


@pytest.mark.parametrize("seed", [2, 3, 7])
def test_true_answers_of_records_are_answers(seed: int) -> None:
    for record in patient_records(make_patient(seed), 0):
        kind = question_kind(with_choices(record.question, record.choices))
        assert kind.choices == record.choices
        assert kind.why_unanswered(record.answer) == "" or record.answer == "none"
        assert SUBTASK[kind.kind] == record.subtask


PARAPHRASES = {
    ("organ_position", "middle third"): (
        "How high in the scan does the liver lie?",
        "In what third of the volume can the pancreas be found?",
        "Does the stomach sit in the upper, middle or lower third of the scan?",
        "Which third of this CT contains the colon?",
    ),
    ("tumor_position", "liver"): (
        "Which organ harbours the tumour?",
        "What organ does the lesion arise from?",
        "Where does the tumour sit?",
        "Locate the mass.",
        "Name the organ with the tumour.",
        "From which organ does the cancer originate?",
    ),
    ("segment_localization", "liver segment V"): (
        "Which part of the colon is affected?",
        "In which segment of the liver is the tumour located?",
        "What portion of the stomach does the lesion involve?",
        "Where within the pancreas is the mass?",
    ),
    ("shape", "lobulated"): (
        "How is the lesion shaped?",
        "What form does the tumour of the liver have?",
        "Give the shape of the mass.",
    ),
    ("boundary", "ill-defined"): (
        "Are the margins of the tumour well-defined or ill-defined?",
        "What are the borders of the lesion like?",
        "Describe the margin of the mass.",
        "How sharply is the tumour defined?",
    ),
    ("density", "hypodense"): (
        "How dense is the tumour compared with the liver?",
        "What is the attenuation of the lesion?",
        "Describe the density of the mass in the pancreas.",
    ),
    ("count", "2"): (
        "How many tumours are in the liver?",
        "What is the number of lesions?",
        "Count the lesions in the colon.",
        "How many masses can be seen?",
    ),
    ("others", "wall thickening"): (
        "What other features does the lesion show?",
        "Which further attributes does the tumour have?",
        "What additional findings does the lesion show?",
    ),
    ("tumor", "T3"): (
        "What T category would you give the tumour?",
        "Give the T stage of the tumour.",
        "Which T stage is this?",
    ),
    ("node", "N1"): (
        "What is the N stage?",
        "Give the nodal stage.",
        "Which N category applies?",
    ),
    ("metastasis", "M0"): (
        "What M category is it?",
        "Give the M stage of the cancer.",
    ),
    ("cot_report", "a tumour of the liver, T3 N1 M0"): (
        "Please write a structured report of this CT.",
        "Summarise the findings of this scan.",
        "Draft a radiology report with an impression.",
        "Give findings and conclusion for this CT.",
    ),
    ("tumor_position", "no"): (
        "Does the colon contain a tumour?",
        "Has the pancreas got a lesion?",
    ),
}
"""By subtask and a possible answer: wordings that no record has."""


@pytest.mark.parametrize(
    ("answer", "question"),
    [(answer, each) for (_, answer), wordings in PARAPHRASES.items() for each in wordings],
)
def test_paraphrases_of_the_subtasks_are_not_refused(answer: str, question: str) -> None:
    assert out_of_scope(question) == ""
    assert question_kind(question).why_unanswered(answer) == ""


ASKED = {
    "organ": "Where is the tumour in this CT?",
    "or no": "Is there a tumour in the abdomen, and in which organ?",
    "yes/no": "Is the liver normal?",
    "T": "Which T category has the tumour of the liver?",
    "stage": "What is the TNM stage of the tumour?",
    "number": "How many lesions are there in the colon?",
    "segment": "In which part of the stomach is the lesion?",
    "shape": "What is the shape of the lesion in the liver?",
    "report": "Write a report with findings, impression and conclusion.",
    "choice": "Which organ holds the tumour?\nA. liver\nB. gastric body\nC. none",
}


@pytest.mark.parametrize(
    ("asked", "answer", "why"),
    [
        ("organ", "pancreas", ""),
        ("organ", "The tumour lies in the tail of the pancreas, T3", ""),
        ("organ", "none", ""),
        ("organ", "no tumour", ""),
        ("organ", "no", 'the question asks for an organ, the model gave "no"'),
        ("organ", "T3", "the question asks for an organ, the model gave a stage (T3)"),
        ("organ", "round", "the model gave a shape (round)"),
        ("organ", "", "the model gave no conclusion"),
        ("organ", "...", "the model gave no conclusion"),
        ("or no", "no", ""),
        ("or no", "liver", ""),
        ("or no", "T3a", "the model gave a stage (T3a)"),
        ("yes/no", "no", ""),
        ("yes/no", "Yes, it is", ""),
        ("yes/no", "not normal", ""),
        ("yes/no", "liver", "the question asks for yes or no, the model gave an organ (liver)"),
        ("T", "T4a", ""),
        ("T", "N1", "the question asks for a T category, the model gave a stage (N1)"),
        ("stage", "T2 N0 M0", ""),
        ("stage", "liver", "the model gave an organ (liver)"),
        ("number", "2", ""),
        ("number", "two lesions", ""),
        ("number", "oval", "the question asks for a number, the model gave a shape (oval)"),
        ("segment", "gastric body", ""),
        ("segment", "the upper part", ""),
        ("segment", "yes", 'the model gave "yes"'),
        ("shape", "lobulated", ""),
        ("shape", "like a pear", ""),
        ("shape", "T2", "the question asks for a shape, the model gave a stage (T2)"),
        ("report", "a tumour of the liver", ""),
        ("report", "T1", "the question asks for a report, the model gave a stage (T1)"),
        ("choice", "B", ""),
        ("choice", "gastric body", ""),
        ("choice", "none", ""),
        ("choice", "spleen", "asks for one of its options, the model gave an organ (spleen)"),
    ],
)
def test_answers_of_the_kind_that_was_asked(asked: str, answer: str, why: str) -> None:
    found = question_kind(ASKED[asked]).why_unanswered(answer)
    assert found.endswith(why)
    assert bool(found) == bool(why)


def test_kind_of_a_question_with_options() -> None:
    assert question_kind(ASKED["choice"]).answer_kind == "choice"
    assert question_kind(ASKED["choice"]).kind == "organ"
    assert question_kind("Where is the tumour?\nA. liver").choices == ()


@pytest.mark.parametrize(
    "text", ["", "?", "where " * 5000, "a. b. " * 3000, "\udc80", "or " * 9000]
)
def test_kind_of_any_text(text: str) -> None:
    kind = question_kind(text)
    assert isinstance(kind.why_unanswered(text), str)
