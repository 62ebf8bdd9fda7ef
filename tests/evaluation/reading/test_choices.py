import pytest

from tumorchain_jax.evaluation.reading.answer_part import Abstained
from tumorchain_jax.evaluation.reading.choices import read_choice

SPLEEN = {"A": "Normal (no splenomegaly)", "B": "Moderate", "C": "Severe", "D": "Mild"}
YES_NO = {"A": "Yes", "B": "No"}
VOLUME = {"A": "231.4", "B": "257.1", "C": "-12.4", "D": "12.4"}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Option B is correct", "B"),
        ("I choose C", "C"),
        ("A is correct", "A"),
        ("The correct answer is not A but C", "C"),
        ("The answer is a mild splenomegaly", "D"),
        ("A normal spleen", "A"),
        ("Severe is excluded. Moderate.", "B"),
        ("Definitely not A. D", "D"),
        ("The final answer is $\\boxed{C}$.", "C"),
        ("**Answer:** C", "C"),
        ("Sorry, D", "D"),
    ],
)
def test_letters_and_words(text: str, letter: str) -> None:
    assert read_choice(SPLEEN, text) == letter


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A/B", "ambiguous"),
        ("It is either B or C", "ambiguous"),
        ("A) Mild", "ambiguous"),
        ("A: wrong. B: correct", "ambiguous"),
        ("Mild to moderate", "ambiguous"),
        ("Answer: E", "invalid_choice"),
        ("Looks like hepatitis B", "no_choice"),
        ("N/A", "no_choice"),
        ("I cannot tell", "refusal"),
    ],
)
def test_abstentions(text: str, why: str) -> None:
    assert read_choice(SPLEEN, text) == Abstained(why)


def test_yes_and_no_are_words() -> None:
    assert read_choice(YES_NO, "No, there is not") == "B"
    assert read_choice(YES_NO, "A) No") == Abstained("ambiguous")
    assert read_choice(YES_NO, "There is a lesion") == Abstained("no_choice")


@pytest.mark.parametrize(
    ("text", "letter"), [("0.2571 L", "B"), ("-12.40 cm3", "C"), ("+12.4", "D"), ("A: 231.4", "A")]
)
def test_numbers_by_value(text: str, letter: str) -> None:
    assert read_choice(VOLUME, text, "volume") == letter
