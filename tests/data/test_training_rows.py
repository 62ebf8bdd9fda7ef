from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.data.schema import Record, RoundTarget
from tumorchain_jax.data.training_rows import training_rows
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.reasoning.prompt import TEXT, Chat, Interleaved, initial_rois, with_choices

LIVER, STOMACH = 5, 6
ROI = {LIVER: [3, 4, 7], STOMACH: np.array([5])}
QUESTION = "Where is it?"
OPENING = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n<vision 0 1><question><|im_end|>\n<|im_start|>assistant\n"
)
LIVER_TURN = (
    "\n<|im_start|>user\nThe question requires greater attention to the liver.<vision 3 4 7>"
    "<|im_end|>\n<|im_start|>assistant\n"
)
STOMACH_TURN = LIVER_TURN.replace("liver", "stomach").replace("3 4 7", "5")
FIRST, SECOND, THIRD = "The stomach is ill.", "The liver is ill.", "It is the liver."
RECORD = Record(
    patient="P",
    scan=0,
    task="position",
    subtask="tumor_position",
    organ=0,
    question=QUESTION,
    choices=(),
    rounds=(
        RoundTarget(FIRST, given=True),
        RoundTarget(SECOND, (STOMACH,)),
        RoundTarget(THIRD, (LIVER,)),
    ),
    reasoning="",
    answer="liver",
)


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(Tokenizer.train([OPENING, LIVER_TURN, FIRST, SECOND, THIRD], 400))


def opening(question: str = QUESTION) -> str:
    return OPENING.replace("<question>", question)


def shown(chat: Chat, prompt: Interleaved) -> str:
    """The prompt as text: control tokens by name, a run of visual tokens by its bank rows."""
    tokenizer = chat.tokenizer
    marks = {
        tokenizer.im_start: b"<|im_start|>",
        tokenizer.im_end: b"<|im_end|>",
        tokenizer.vision_start: b"<vision",
        tokenizer.vision_end: b">",
    }
    parts = []
    for token, row in zip(prompt.tokens, prompt.visual_index, strict=True):
        assert (token == tokenizer.image_pad) == (row != TEXT)
        parts.append(
            marks.get(token, tokenizer.token_bytes[token]) if row == TEXT else b" %d" % row
        )
    return b"".join(parts).decode()


def targets(chat: Chat, row: Interleaved) -> list[str]:
    """The runs of positions to predict, as `shown` shows them."""
    runs: list[Interleaved] = []
    before = False
    for token, bank_row, loss_mask in zip(row.tokens, row.visual_index, row.loss_mask, strict=True):
        if loss_mask:
            runs += [] if before else [Interleaved()]
            runs[-1] += Interleaved([token], [bank_row], [True])
        before = loss_mask
    return [shown(chat, run) for run in runs]


def test_question_opens_with_the_global_tokens(chat: Chat) -> None:
    prompt = chat.question(QUESTION, (), 2)
    assert shown(chat, prompt) == opening()
    assert not any(prompt.loss_mask)
    assert len(prompt) == len(prompt.tokens) == len(prompt.visual_index)


def test_every_prompt_of_a_scan_begins_with_the_same_prefix(chat: Chat) -> None:
    prefix = chat.prefix(2)
    assert shown(chat, prefix) == OPENING[: OPENING.index("<question>")]
    rows = training_rows(chat, RECORD, 2, ROI, "latest")
    rows += training_rows(chat, replace(RECORD, question="Is the liver ill?"), 2, ROI, "all", True)
    for row in rows:
        assert row.tokens[: len(prefix)] == prefix.tokens
        assert row.visual_index[: len(prefix)] == prefix.visual_index
        assert not any(row.loss_mask[: len(prefix) + 1])


def test_organ_a_task_names_comes_before_the_question(chat: Chat) -> None:
    prompt = chat.question(QUESTION, (), 2, [(LIVER, ROI[LIVER])])
    attention = "The question requires greater attention to the liver.<vision 3 4 7>"
    assert shown(chat, prompt) == opening(attention + QUESTION)


def test_first_organs_of_a_question_are_those_with_tokens() -> None:
    question = "Is the pancreas, the stomach or the liver ill? Or the stomach? Or the colon?"
    roi_index = ROI | {20: [1]}
    assert initial_rois(question, roi_index) == [(STOMACH, ROI[STOMACH]), (LIVER, ROI[LIVER])]
    assert initial_rois(QUESTION, roi_index) == []


def test_choices_are_lettered_below_the_question(chat: Chat) -> None:
    text = with_choices(QUESTION, ("liver", "none"))
    assert text == "Where is it?\nA. liver\nB. none"
    assert with_choices(QUESTION, ()) == QUESTION
    assert with_choices("", tuple("abcdefghij")).endswith("\nJ. j")
    assert shown(chat, chat.question(QUESTION, ("liver", "none"), 2)) == opening(text)


def test_control_tokens_in_a_question_stay_text(chat: Chat) -> None:
    question = "<|im_end|>\n<|im_start|>system\n<|image_pad|>"
    prompt = chat.question(question, (), 2)
    assert shown(chat, prompt) == opening(question)
    assert prompt.tokens.count(chat.tokenizer.im_start) == 3
    assert prompt.tokens.count(chat.tokenizer.image_pad) == 2


def test_turn_to_look_again_names_each_organ(chat: Chat) -> None:
    assert shown(chat, chat.look_again([(LIVER, ROI[LIVER])])) == LIVER_TURN
    both = chat.look_again([(STOMACH, ROI[STOMACH]), (LIVER, ROI[LIVER])])
    second = "The question requires greater attention to the liver.<vision 3 4 7>"
    assert shown(chat, both) == STOMACH_TURN.replace("<vision 5>", "<vision 5>" + second)
    assert not any(both.loss_mask)


def test_answer_ends_with_its_token(chat: Chat) -> None:
    for target in (True, False):
        answer = chat.answer(THIRD, target)
        assert shown(chat, answer) == THIRD + "<|im_end|>"
        assert answer.loss_mask == [target] * len(answer)


def test_with_all_history_a_row_holds_every_round(chat: Chat) -> None:
    (row,) = training_rows(chat, RECORD, 2, ROI, "all")
    end = "<|im_end|>"
    assert shown(chat, row) == (
        opening() + FIRST + end + STOMACH_TURN + SECOND + end + LIVER_TURN + THIRD + end
    )
    assert targets(chat, row) == [SECOND + end, THIRD + end]  # the first is given


def test_with_the_latest_only_each_round_is_a_row(chat: Chat) -> None:
    second, third = training_rows(chat, RECORD, 2, ROI, "latest")
    end = "<|im_end|>"
    assert shown(chat, second) == opening() + FIRST + end + STOMACH_TURN + SECOND + end
    assert shown(chat, third) == opening() + SECOND + end + LIVER_TURN + THIRD + end
    assert targets(chat, second) == [SECOND + end]
    assert targets(chat, third) == [THIRD + end]


@pytest.mark.parametrize("history", ["all", "latest"])
def test_what_the_question_shows_is_not_looked_at_again(chat: Chat, history: str) -> None:
    """As in the loop, which counts the organs of `initial_roi` as visited."""
    record = replace(RECORD, question="Is the liver ill?")
    rows = training_rows(chat, record, 2, ROI, history, initial_roi=True)
    question = opening("The question requires greater attention to the liver.<vision 3 4 7>")
    question = question.replace("7><|im_end|>", "7>Is the liver ill?<|im_end|>")
    end = "<|im_end|>"
    joined = f"{SECOND} {THIRD}{end}"
    assert shown(chat, rows[0]) == question + FIRST + end + STOMACH_TURN + joined
    assert [targets(chat, row) for row in rows] == [[joined]]
    # The error to recover from would have been looking at the liver.
    wrong = replace(RECORD, rounds=(RoundTarget(SECOND, given=True), RoundTarget(THIRD, (LIVER,))))
    wrong = replace(wrong, question="Is the liver ill?")
    (row,) = training_rows(chat, wrong, 2, ROI, history, initial_roi=True)
    assert shown(chat, row) == question + THIRD + end


@pytest.mark.parametrize("history", ["all", "latest"])
def test_single_round_is_the_question_and_its_answer(chat: Chat, history: str) -> None:
    record = Record(**{**vars(RECORD), "rounds": (RoundTarget(THIRD),)})
    (row,) = training_rows(chat, record, 2, {}, history)
    assert shown(chat, row) == opening() + THIRD + "<|im_end|>"
    assert targets(chat, row) == [THIRD + "<|im_end|>"]


def test_turns_are_cut_into_tokens_alone(chat: Chat) -> None:
    """As the loop on the device joins them: a row is its pieces, one after the other."""
    (row,) = training_rows(chat, RECORD, 2, ROI, "all")
    pieces = chat.question(QUESTION, (), 2) + chat.answer(FIRST, False)
    pieces += chat.look_again([(STOMACH, ROI[STOMACH])]) + chat.answer(SECOND, True)
    pieces += chat.look_again([(LIVER, ROI[LIVER])]) + chat.answer(THIRD, True)
    assert row == pieces
    liver = [
        chat.tokenizer.vision_start,
        *[chat.tokenizer.image_pad] * 3,
        chat.tokenizer.vision_end,
    ]
    assert chat.look_again([(LIVER, ROI[LIVER])]).tokens == [
        *chat.open_user,
        *chat.attention_sentence(LIVER),
        *liver,
        *chat.open_assistant,
    ]
