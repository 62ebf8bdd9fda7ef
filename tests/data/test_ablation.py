from dataclasses import replace

from tumorchain_jax.data.ablation import without_cot, without_iir
from tumorchain_jax.data.schema import Record, RoundTarget

LOOK = "The liver needs a closer look."
LAST = "<think> First, the liver\nshows one lesion. </think> Thus, the answer is liver."
RECORD = Record(
    patient="P",
    scan=0,
    task="position",
    subtask="tumor_position",
    organ=0,
    question="Where is it?",
    choices=("liver", "none"),
    rounds=(
        RoundTarget(f"<think> Something is wrong. </think> {LOOK}", given=True),
        RoundTarget(LAST, (5,)),
    ),
    reasoning="Something is wrong.",
    answer="liver",
)


def test_without_cot_the_thought_goes_and_all_else_stays() -> None:
    expected = (RoundTarget(LOOK, given=True), RoundTarget("Thus, the answer is liver.", (5,)))
    assert without_cot(RECORD) == replace(RECORD, rounds=expected)


def test_without_cot_each_thought_of_a_text_goes() -> None:
    text = "<think> a </think> One. <think> b </think> Two."
    record = replace(RECORD, rounds=(RoundTarget(text),))
    assert without_cot(record).rounds == (RoundTarget("One. Two."),)


def test_without_iir_the_last_text_is_written_at_once() -> None:
    assert without_iir(RECORD) == replace(RECORD, rounds=(RoundTarget(LAST),))


def test_without_both_the_conclusion_is_left() -> None:
    expected = (RoundTarget("Thus, the answer is liver."),)
    assert without_iir(without_cot(RECORD)).rounds == expected
    assert without_cot(without_iir(RECORD)).rounds == expected
