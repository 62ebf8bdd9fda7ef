import json
from pathlib import Path

import pytest

from tumorchain_jax.evaluation.reading.answer_part import Abstained, answer_part
from tumorchain_jax.evaluation.reading.yes_no import read_yes_no


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I do not see a lesion", "no"),
        ("The liver doesn't show a lesion", "no"),
        ("It is not abnormal", "no"),
        ("Multiple lesions are seen", "yes"),
        ("lesion present: no", "no"),
        ("No doubt: yes", "yes"),
        ("I would not say yes; the answer is no", "no"),
        ("Nope", "no"),
    ],
)
def test_wordings(text: str, said: str) -> None:
    assert read_yes_no(text) == said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("No calcification, but a lesion is present", "ambiguous"),
        ("There is a lesion with no calcification.", "ambiguous"),
        ("yes and no", "ambiguous"),
        ("No image provided", "refusal"),
        ("No, I cannot see the image", "refusal"),
        ("Maybe", "no_yes_no"),
    ],
)
def test_abstentions(text: str, why: str) -> None:
    assert read_yes_no(text) == Abstained(why)


@pytest.mark.parametrize(
    "name", ["vqa-slake/slake_en_ct_abdomen_validate.json", "vqa-rad-abdomen/qa.json"]
)
def test_answers_of_other_data_sets(shared_data: Path, name: str) -> None:
    """A check of the text format: what people wrote as yes or no is read as that, in any case."""
    answers = [str(row["answer"]) for row in json.loads((shared_data / name).read_bytes())]
    closed = [answer for answer in answers if answer.strip().lower() in ("yes", "no")]
    assert len(closed) > 80
    for answer in closed:
        for text in (
            answer,
            f"**{answer}**.",
            f"<think>perhaps</think> {answer}",
            f"Answer: {answer}",
        ):
            assert read_yes_no(answer_part(text)) == answer.strip().lower()
