import pytest

from tumorchain_jax.evaluation.reading.answer_part import Abstained, answer_part, refuses


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("maybe A </think> B", "B"),
        ("<Thinking>A</THINKING>\nB", "B"),
        ("<think>x</think><answer>C</answer> because", "C"),
        ("<answer>C", "C"),
        ("\u200b\uff22", "B"),
        ("2 x 10\u207b\u00b2", "2 x 10^-2"),
    ],
)
def test_part_that_answers(text: str, part: str) -> None:
    assert answer_part(text) == part


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("...", "empty"),
        ("<think>a</think>", "empty"),
        ("<think>It is B", "cut"),
        ("x</think> <think> B", "cut"),
        ("[ERROR] ValueError: A", "error"),
    ],
)
def test_no_answer_has_its_reason(text: str, why: str) -> None:
    assert answer_part(text) == Abstained(why)


@pytest.mark.parametrize("text", ["I cannot tell", "No image was provided", "As an AI, no"])
def test_refusals(text: str) -> None:
    assert refuses(text)


def test_no_lesion_is_no_refusal() -> None:
    assert not refuses("No lesion is seen; no CT evidence of disease")
