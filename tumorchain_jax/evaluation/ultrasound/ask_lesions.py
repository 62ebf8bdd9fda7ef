"""`tumorchain bus ask`: the arms of `bus chains` put to a vision-language model, turn by turn.

The second look is the reasoning loop on ultrasound: the model writes what it sees, is shown the
region of the lesion as a second picture of a fixed size, and goes on in the same chat.

Controls: `text` asks without any picture, `shuffled` with those of another lesion. What a model
says then is what it knows without looking.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from PIL import Image
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.data.json_lines import read_lines
from tumorchain_jax.evaluation.ultrasound.replies import (
    BEGIN,
    BENIGN,
    MALIGNANT,
    answer_probability,
)
from tumorchain_jax.models.qwen_vl.pictures import open_picture
from tumorchain_jax.models.qwen_vl.prompt import Spoken
from tumorchain_jax.ultrasound.chains.messages import PICTURE, Arm, check_asked
from tumorchain_jax.ultrasound.chains.write import read_records

Control = Literal["none", "text", "shuffled"]
CONTROLS: tuple[Control, ...] = get_args(Control)
LIMIT, LENGTH = 160, 128
"""Tokens of an answer at most; positions of a prompt at least."""
Chat = tuple[Sequence[Image.Image], Sequence[Spoken]]


@runtime_checkable
class Seeing(Protocol):
    """What is asked: `inference/vision_language_model.py: VisionLanguageModel`."""

    tokenizer: Any

    def answer(self, chats: Sequence[Chat], limit: int, *, length: int) -> list[str]:
        """Write the next answer of each chat."""

    def next_logits(self, chats: Sequence[Chat], begun: Sequence[str], length: int) -> np.ndarray:
        """Logits of the token after answers that are begun."""


def ask(
    model: Seeing,
    data: Path,
    arm: Arm,
    fold: int,
    output: Path,
    control: Control = "none",
    batch: int = 16,
) -> dict[str, int]:
    """Ask about the lesions of a fold, or of the test part (-1), and write the replies.

    Returns:
        how many were asked about, and how many replies have a probability.

    Raises:
        InputError: the rows are not what the arm asks, the fold is empty, or the tokenizer has no
            token of its own for an answer.
    """
    rows = _rows(data, arm, fold)
    shown = np.arange(len(rows))
    if control == "shuffled":  # in a circle at random, so that none keeps its own
        circle = np.random.default_rng(0).permutation(len(rows))
        shown[circle] = np.roll(circle, 1)
    answers = [_token(model, word) for word in (BENIGN, MALIGNANT)]
    # Without pictures all are asked the same. The last batch is filled up: one program serves all.
    asked = rows[:1] if control == "text" else rows
    starts = range(0, len(asked), batch)
    replies: list[dict[str, Any]] = []
    for start in tqdm(starts, desc=f"{arm}, {control}", unit="batch", disable=None):
        numbers = np.minimum(np.arange(start, start + batch), len(asked) - 1)
        pictures = [
            [open_picture(data / path) for path in rows[shown[number]]["images"]]
            if control != "text"
            else []
            for number in numbers
        ]
        turns = [[turn["content"] for turn in rows[number]["messages"]] for number in numbers]
        replies += _converse(model, pictures, turns, answers)
    replies = replies[:1] * len(rows) if control == "text" else replies[: len(rows)]
    lines = [
        json.dumps({"id": row["id"], **reply}, ensure_ascii=False) + "\n"
        for row, reply in zip(rows, replies, strict=True)
    ]
    write_file(output, "".join(lines).encode())
    return {"asked": len(rows), "with_probability": sum("malignant" in each for each in replies)}


def _rows(data: Path, arm: Arm, fold: int) -> list[Mapping[str, Any]]:
    folds = {values["id"]: values["fold"] for values, _ in read_records(data)}
    path = data / f"asked-{arm}.jsonl"
    rows: list[Mapping[str, Any]] = []
    for source, _, row in read_lines(path):
        check_asked(arm, row, source)
        if folds.get(row["id"]) == fold:
            rows.append(row)
    if len(rows) < 2:
        found, expected = f"{len(rows)} lesions of fold {fold}", "two or more"
        raise InputError(path, "rows", found, expected, "name another fold")
    return rows


def _token(model: Seeing, word: str) -> int:
    found = model.tokenizer.encode(word)
    if len(found) != 1:
        expected, hint = "one token", "use the tokenizer that `bus chains` wrote"
        raise InputError("tokenizer", word, f"{len(found)} tokens", expected, hint)
    return int(found[0])


def _converse(
    model: Seeing,
    pictures: Sequence[Sequence[Image.Image]],
    turns: Sequence[Sequence[str]],
    answers: Sequence[int],
) -> Iterator[dict[str, Any]]:
    """All turns of a batch; of each row its text and the probability at the answer's slot."""
    spoken: list[list[Spoken]] = [[] for _ in turns]
    said: list[list[str]] = [[] for _ in turns]
    chats: list[Chat] = []
    for turn in range(len(turns[0])):
        chats = []
        for row, asked in enumerate(turns):
            if turn:
                spoken[row].append(("assistant", [said[row][-1]]))
            # Without pictures no place is named.
            parts = asked[turn].split(PICTURE) if pictures[row] else [
                asked[turn].replace(PICTURE, "")
            ]  # fmt: skip
            spoken[row].append(("user", parts))
            places = sum(len(texts) - 1 for _, texts in spoken[row])
            chats.append((pictures[row][:places], list(spoken[row])))
        for row, words in enumerate(model.answer(chats, LIMIT, length=LENGTH)):
            said[row].append(words)
    begun = [_up_to_slot(texts[-1]) for texts in said]
    # Rows without an answer take part, so that one program serves all batches.
    logits = model.next_logits(chats, [text or "" for text in begun], LENGTH + LIMIT)
    for row, texts in enumerate(said):
        reply: dict[str, Any] = {"text": " ".join(texts)}
        if begun[row] is not None:
            reply["malignant"] = answer_probability(*(float(logits[row, k]) for k in answers))
        yield reply


def _up_to_slot(text: str) -> str | None:
    """The answer up to the last place where its digit belongs; None if it was not begun."""
    at = text.rfind(BEGIN)
    return None if at < 0 else f"{text[: at + len(BEGIN)]} "
