"""Lesions of one grey value each, and a stand-in for a model that answers by it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tumorchain_jax.ultrasound.chains.messages import QUESTION
from tumorchain_jax.ultrasound.chains.write import write_chains
from tumorchain_jax.ultrasound.lesion import MANIFEST, Box, Lesion, lines


def write_lesions(folder: Path) -> Path:
    """Rows of `bus chains` in two folds: bright ones are malignant; half have a shape."""
    (folder / "bus" / "images").mkdir(parents=True)
    rng, rows = np.random.default_rng(0), []
    for number in range(40):
        name, malignant = f"bus_{number}", bool(number % 2)
        Image.new("L", (40, 40), 200 if malignant else 40 + number).save(
            folder / "bus" / "images" / f"{name}.png"
        )
        shape = {"shape": "irregular" if malignant else "oval"} if number < 20 else {}
        rows.append(
            Lesion(
                id=name, image=f"images/{name}.png", mask="", box=Box(10, 10, 20, 15),
                patient=name, patient_known=True, view="", device="",
                source="breast" if shape else "bus-bra", descriptors=shape,
                label="malignant" if malignant else "benign", width=40, height=40,
                hash=rng.bytes(64).hex(), cluster=number,
            )
        )  # fmt: skip
    (folder / "bus" / MANIFEST).write_text("".join(lines(rows)))
    write_chains(folder / "bus", folder / "chains", folds=2)
    return folder / "chains"


class Words:
    """A tokenizer of two answers."""

    def encode(self, text: str) -> list[int]:
        return [int(text)]


class Looker:
    """Says by the grey value of the last picture; of some it breaks off."""

    tokenizer = Words()

    def __init__(self) -> None:
        self.chats: list[Any] = []

    def _bright(self, chat: Any) -> float:
        pictures, _ = chat
        return float(np.asarray(pictures[-1].convert("L")).mean()) if pictures else 0.0

    def answer(self, chats: Sequence[Any], limit: int, *, length: int) -> list[str]:
        self.chats += chats
        said = []
        for chat in chats:
            is_first = len(chat[1]) == 1
            if is_first and chat[1][0][1][-1].startswith(QUESTION[7:]) and self.is_look:
                said.append("<reasoning> A lesion is seen.")
            elif 41 < self._bright(chat) < 49:
                said.append("Its shape is ov")
            else:
                said.append(f"</reasoning> <answer> {int(self._bright(chat) > 100)} </answer>")
        return said

    is_look = False

    def next_logits(self, chats: Sequence[Any], begun: Sequence[str], length: int) -> np.ndarray:
        assert all(text == "" or text.endswith("<answer> ") for text in begun)
        return np.array([[0.0, self._bright(chat) / 50 - 2] for chat in chats], np.float32)
