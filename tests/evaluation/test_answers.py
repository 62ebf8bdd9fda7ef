import pytest

from tumorchain_jax.anatomy import staging
from tumorchain_jax.anatomy.organs import SUB_ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, Record, RoundTarget
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, OTHERS, SHAPES
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.phantoms.records import patient_records

ORGAN_CHOICES = ("stomach", "liver", "none", "pancreas")
PARTS = ("left lobe of the liver", "liver", "right lobe of the liver", "liver segment I")


def record(subtask: str, truth: str, choices: tuple[str, ...] = ()) -> Record:
    task = next(task for task, subtasks in SUBTASKS.items() if subtask in subtasks)
    rounds = (RoundTarget("x"),)
    return Record("p", 0, task, subtask, 0, "q?", choices, rounds, "", truth)


def right(subtask: str, truth: str, text: str, choices: tuple[str, ...] = ()) -> bool:
    return judge(record(subtask, truth, choices), text).right


@pytest.mark.parametrize(
    "text",
    [
        "<think> First, the stomach looks normal. </think> Thus, the answer is B. liver.",
        "Thus, the answer is B.",
        "Thus, the answer is liver.",
        "B",
        "(b)",
        "B) Liver",
        "Answer: B",
        "<Answer>**B**</Answer>",
        "Conclusion: the LIVER.",
        "Conclusion: option B.",
    ],
)
def test_choice_is_read_by_letter_or_text(text: str) -> None:
    judgement = judge(record("tumor_position", "liver", ORGAN_CHOICES), text)
    assert judgement.right
    assert judgement.parsed == judgement.truth == "liver"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("A", "stomach"),
        ("B. stomach", "liver or stomach"),
        ("B. liver or A. stomach", "liver or stomach"),
        ("liver or stomach", "liver or stomach"),
        ("B. spleen", "liver or spleen"),  # no choice, but not the letter's text either
        ("not the liver", "liver or none"),
        ("F", "F"),
        ("no lesion", "none"),
        ("A liver", "liver"),  # an article
        ("A or B", ""),
        ("I cannot tell", ""),
        ("", ""),
    ],
)
def test_letters_and_texts_must_not_compete(text: str, parsed: str) -> None:
    judgement = judge(record("tumor_position", "liver", ORGAN_CHOICES), text)
    assert judgement.parsed == parsed
    assert judgement.right == (parsed == "liver")


def test_choice_within_a_longer_choice_is_not_named_by_it() -> None:
    truth = "left lobe of the liver"
    assert right("segment_localization", truth, "the left lobe of the liver", PARTS)
    assert right("segment_localization", truth, "A. left lobe of the liver", PARTS)
    assert not right("segment_localization", truth, "liver", PARTS)
    # A numeral at the end is no letter of a choice.
    assert right("segment_localization", "liver segment I", "D. liver segment I.", PARTS)


def test_sizes_are_choices_too() -> None:
    sizes = ("<2 cm", "2 cm", "2.5 cm")
    assert judge(record("others", "2.5 cm", sizes), "2.5 cm").right
    assert judge(record("others", "<2 cm", sizes), "A. <2 cm").right
    assert judge(record("others", "2 cm", sizes), "2.5 cm").parsed == "2.5 cm"


@pytest.mark.parametrize("answer", ["liver", "B. liver", "B"])
def test_truth_may_carry_its_letter(answer: str) -> None:
    assert judge(record("tumor_position", answer, ORGAN_CHOICES), "B").right


@pytest.mark.parametrize(
    ("truth", "answer", "said"),
    [
        ("liver", "a hepatic mass", True),
        ("liver", "a tumour of the liver", True),
        ("liver", "caudate lobe", True),
        ("left kidney", "left renal", True),
        ("left kidney", "kidney", False),
        ("colon", "colorectum", True),
        ("esophagus", "oesophageal", True),
        ("liver", "liver or stomach", False),
        ("liver", "no lesion in the liver", False),
        ("liver", "none", False),
        ("none", "none", True),
        ("none", "no tumour", True),
        ("none", "normal", True),
        ("none", "liver", False),
        ("none", "none, or the liver", False),
        ("head of the pancreas", "the pancreas", False),
    ],
)
def test_organs_by_any_name(truth: str, answer: str, said: bool) -> None:
    assert right("tumor_position", truth, f"<think>x</think> {answer}.") is said


@pytest.mark.parametrize(
    ("truth", "answer", "said"),
    [
        ("head of the pancreas", "pancreatic head", True),
        ("head of the pancreas", "the pancreas, in the head of the pancreas", True),
        ("head of the pancreas", "pancreatic tail", False),
        ("head of the pancreas", "pancreas", False),
        ("head of the pancreas", "pancreatic head and liver", False),
        ("gastric body", "body of the stomach", True),
        ("gastric body", "pancreatic body", False),
        ("liver segment IVa", "segment IVa", True),
        ("liver segment IVa", "segment IV", False),
        ("left lobe of the liver", "left hepatic lobe", True),
        ("cecum", "caecum", True),
        ("lower thoracic esophagus", "lower oesophagus", True),
        # Not in the list of parts: nothing but the words themselves will do.
        ("upper third of the esophagus", "the upper third of the esophagus", True),
        ("upper third of the esophagus", "esophagus", False),
    ],
)
def test_segments(truth: str, answer: str, said: bool) -> None:
    assert right("segment_localization", truth, f"Thus, the answer is {answer}.") is said


@pytest.mark.parametrize(
    ("subtask", "truth", "answer", "said"),
    [
        ("density", "hypodense", "Hypodense", True),
        ("density", "hypodense", "a hypo-dense lesion", True),
        ("density", "hypodense", "hyperdense", False),
        ("density", "hypodense", "hypodense or hyperdense", False),
        ("density", "hypodense", "not hypodense", False),
        ("density", "hypodense", "hypodensely", False),
        ("shape", "round", "round", True),
        ("shape", "round", "around it", False),
        ("boundary", "well-defined", "well defined", True),
        ("boundary", "well-defined", "ill-defined", False),
        ("boundary", "ill-defined", "poorly-defined", True),
        ("count", "2", "two lesions", True),
        ("count", "two lesions", "2", True),
        ("count", "2", "two or three", False),
        ("count", "2", "2.5", False),
        ("count", "2", "two lesions, the largest 3 cm", True),
        ("count", "0", "no lesion", True),
        ("others", "wall thickening", "thickened wall", True),
        ("others", "enhancement", "rim enhancement", True),
        ("others", "enhancement", "rim-enhancing", True),
        ("others", "enhancement", "non-enhancing", False),
        ("others", "ductal dilatation", "a dilated duct", True),
        ("others", "none", "nothing else", True),
        ("others", "none", "calcification", False),
        ("organ_position", "upper third", "the upper third of the scan", True),
        ("organ_position", "upper third", "the middle of the liver lies in the upper third", True),
        ("organ_position", "upper third", "at the top", True),
        ("organ_position", "middle third", "central", True),
        ("organ_position", "lower third", "at the bottom of the scan", True),
        ("organ_position", "lower third", "middle or lower third", False),
        ("organ_position", "lower third", "upper or lower", False),
        ("organ_position", "lower third", "not in the lower third", False),
        ("organ_position", "lower third", "liver", False),
        ("others", "calcification", "no calcification", False),
        ("others", "small", "small", True),
        ("others", "small", "small or large", False),
        ("tumor_position", "yes", "Yes, in the liver", True),
        ("tumor_position", "no", "No lesion in the liver", True),
        ("tumor_position", "no", "yes", False),
        ("tumor_position", "no", "yes and no", False),
        ("tumor_position", "yes", "yesterday", False),
        ("tumor", "T4a", "stage t4a", True),
        ("tumor", "T4a", "T4aN1M0", True),
        ("tumor", "T4a", "cT4a", True),
        ("tumor", "T4a", "T4", False),
        ("tumor", "T4a", "T4b", False),
        ("tumor", "T4a", "T4a or T4b", False),
        ("node", "N0", "T4aN0M1", True),
        ("node", "N0", "N0, no node is enlarged", True),
        ("node", "N1", "N1b", False),
        ("metastasis", "M1a", "M1a", True),
        ("metastasis", "M0", "M1", False),
    ],
)
def test_words(subtask: str, truth: str, answer: str, said: bool) -> None:
    assert right(subtask, truth, f"Thus, the answer is {answer}.") is said


@pytest.mark.parametrize(
    ("truth", "answer", "said"),
    [
        ("a tumour of the liver", "a hepatic tumour", True),
        ("a tumour of the liver", "no tumour", False),
        ("no tumour", "no tumour", True),
        ("a tumour of the liver, T2 N0 M0", "liver, T2 N0 M0", True),
        ("a tumour of the liver, T2 N0 M0", "liver, T2 N1 M0", False),
        ("a tumour of the liver, T2 N0 M0", "liver, T2", False),
        ("a tumour of the pancreatic head, T2", "T2 tumour of the head of the pancreas", True),
        ("a tumour of the pancreatic head, T2", "T2 tumour of the pancreas", False),
    ],
)
def test_reports_by_all_that_the_truth_speaks_of(truth: str, answer: str, said: bool) -> None:
    assert right("cot_report", truth, f"<think>x</think> Conclusion: {answer}.") is said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "...",
        "I cannot tell",
        "<think> The border is clear",  # cut before it concluded
        "<think> Thus, the answer is clear. </think>",
        "<think> The border is clear. </think> </think>",
    ],
)
def test_nothing_said_is_unparsed_and_wrong(text: str) -> None:
    judgement = judge(record("boundary", "clear"), text)
    assert judgement.parsed == ""
    assert not judgement.right


@pytest.mark.parametrize(
    ("truth", "choices"), [("spleen", ORGAN_CHOICES), ("", ()), ("liver or stomach", ORGAN_CHOICES)]
)
def test_truth_that_cannot_be_is_refused(truth: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="answer"):
        judge(record("tumor_position", truth, choices), "liver")


KNOWN = {
    "density": DENSITIES,
    "shape": SHAPES,
    "boundary": BORDERS,
    "count": tuple(map(str, range(11))),
    "tumor": tuple(name for depths in staging._DEPTHS.values() for name in depths.values()),
    "node": tuple(name for _, names in staging._NODES.values() for name in names),
    "metastasis": ("M0", "M1", "M1a", "M1b", "M1c"),
    "organ_position": ("upper third", "middle third", "lower third"),
    "others": tuple({value for values in OTHERS.values() for value in values}),
    "segment_localization": tuple(name for names in SUB_ORGANS.values() for name in names),
}


@pytest.mark.parametrize("subtask", KNOWN)
def test_each_value_is_known_and_unlike_the_others(subtask: str) -> None:
    # Among other words, which a truth that is not known would not survive.
    texts = {truth: f"Thus, the answer is: it is {truth} here." for truth in KNOWN[subtask]}
    for truth in texts:
        assert [said for said in texts if right(subtask, truth, texts[said])] == [truth]


def test_last_round_of_each_record_is_right() -> None:
    for seed in range(4):
        for made in patient_records(make_patient(seed), 0):
            assert judge(made, made.rounds[-1].text).right, made


@pytest.mark.parametrize(
    "text",
    ["I do not know", "I can't tell.", "This cannot be determined.", "I am not sure.", "Unsure"],
)
def test_to_decide_nothing_is_no_denial(text: str) -> None:
    for subtask, truth in (("tumor_position", "none"), ("others", "none"), ("count", "3")):
        judgement = judge(record(subtask, truth), text)
        assert (judgement.parsed, judgement.right) == ("", False)
