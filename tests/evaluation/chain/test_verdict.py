import pytest

from tumorchain_jax.evaluation.chain.rubric import DIMENSIONS, NAMES, WEIGHTS, Marks, mark
from tumorchain_jax.evaluation.chain.rules import RulesJudge
from tumorchain_jax.evaluation.chain.verdict import Case, silence

REFERENCE = "<think> First, the liver shows one lesion, round. </think> Thus, the answer is round."


def case(chain: str, reference: str = REFERENCE, right: bool | None = True) -> Case:
    return Case("p", "shape", "What shape is it?", (), chain, reference, right)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n\t…", "empty"),
        ("<think> The liver is", "cut"),
        ("<think>a</think> <think> again", "cut"),
        (
            "The liver shows a lesion which is round and the pancreas is normal and the spleen",
            "cut",
        ),
        ("I'm sorry, but I cannot interpret images.", "refusal"),
        ("As an AI model, I won't answer.", "refusal"),
        ("Die Leber ist normal und der Tumor ist nicht groß.", "other language"),
        ("El tumor está en el colon con los ganglios.", "other language"),
        ("肝脏正常。", "other language"),
        ("round", ""),
        ("The answer is round", ""),
        ("I cannot see a lesion in the liver.", ""),
        (REFERENCE, ""),
    ],
)
def test_silence(text: str, why: str) -> None:
    assert silence(text) == why
    verdict = RulesJudge().judge(case(text))
    assert (verdict.state, verdict.why) == (("abstained", why) if why else ("judged", ""))
    assert (verdict.marks is None) == bool(why)


def test_what_cannot_be_read_is_no_mark() -> None:
    unread = RulesJudge().judge(case("Blue skies are seen over the hills.", right=None))
    assert (unread.state, unread.why, unread.marks) == ("abstained", "nothing readable", None)
    no_truth = RulesJudge().judge(case(REFERENCE, "Something else."))
    assert (no_truth.state, no_truth.marks) == ("failed", None)


def test_cot_e_is_the_sum_of_the_marks_and_the_weighted_mean_of_the_levels() -> None:
    marks = Marks(dict(zip(NAMES, (10, 9, 8, 7, 6, 5, 4, 3, 2, 1), strict=True)))
    assert marks.cot_e == 55
    weighted = sum(WEIGHTS[level] * marks.score(level) for level in DIMENSIONS)
    assert marks.cot_e == pytest.approx(weighted)
    assert len(NAMES) == 10


@pytest.mark.parametrize(
    ("faults", "expected"),
    [(0.0, 10), (0.01, 9), (0.09, 8), (0.1, 7), (0.29, 6), (0.3, 5), (0.49, 4), (0.5, 3), (0.7, 2),
     (0.99, 1), (1.0, 0)],
)  # fmt: skip
def test_bands_are_closed(faults: float, expected: int) -> None:
    assert mark(faults) == expected


def test_a_right_chain_has_full_marks_and_a_wrong_one_less() -> None:
    right = RulesJudge().judge(case(REFERENCE)).marks
    wrong = RulesJudge().judge(case(REFERENCE.replace("round", "irregular"), right=False)).marks
    assert right is not None
    assert wrong is not None
    assert right.cot_e == 100
    assert wrong.of["accuracy"] < 10
    assert wrong.of["evidence"] == 0
