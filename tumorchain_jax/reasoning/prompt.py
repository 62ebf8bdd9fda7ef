"""The interleaved prompt: a family's chat template with visual tokens between the words.

A prompt is a row of positions; each holds a token id and, where it is visual, the index of one of
the scan's visual tokens (see `models/tumorchain/model.py`). The pieces are tokenized one by one, so
that a turn built here (Eq. 4 to 6, for training and for the first prompt) and its twin built on the
device inside the reasoning loop (`roi.py`) are the same ids.

    system, user: [vision: global tokens] question                                    -> round 1
    user: The question requires greater attention to the liver. [vision: ROI tokens]  -> round 2
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tumorchain_jax.anatomy.organs import display_name, labels_named
from tumorchain_jax.models.language.chat_template import CHATML, ChatTemplate
from tumorchain_jax.models.language.tokenizer import Tokenizer

LETTERS = "ABCDEFGHIJ"
"""Of a question's options."""
MAX_QUESTION_TOKENS = 192
"""The most that a question takes with its template, without visual tokens."""
TEXT = -1
INITIAL_ORGANS = 2
History = Literal["all", "latest"]
Roi = tuple[int, Sequence[int] | np.ndarray]
"""An organ and the visual indices of its ROI tokens."""


@dataclass
class Interleaved:
    """A prompt, or a piece of one.

    Attributes:
        tokens: id at each position; `image_pad` where it is visual.
        visual_index: index of the visual token at each position, `TEXT` where there is none.
        loss_mask: whether training should predict this position.
    """

    tokens: list[int] = field(default_factory=list)
    visual_index: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)

    def add(self, tokens: Sequence[int], target: bool = False) -> None:
        """Append text tokens."""
        self.tokens += tokens
        self.visual_index += [TEXT] * len(tokens)
        self.loss_mask += [target] * len(tokens)

    def __add__(self, other: "Interleaved") -> "Interleaved":
        return Interleaved(
            self.tokens + other.tokens,
            self.visual_index + other.visual_index,
            self.loss_mask + other.loss_mask,
        )

    def __len__(self) -> int:
        return len(self.tokens)


class Chat:
    """The template's pieces, tokenized once.

    Attributes:
        open_user: what follows the end of the assistant's turn and opens the user's.
        open_assistant: what ends the user's turn and opens the assistant's.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate = CHATML):
        self.tokenizer = tokenizer
        encode = tokenizer.encode_template
        self._system, self._user = encode(template.system), encode(template.open_user)
        self.open_user = [*encode(template.after_answer), *self._user]
        self.open_assistant = encode(template.close_user + template.open_assistant)

    def attention_sentence(self, label: int) -> list[int]:
        """Tokenize the ROI prompt of an organ (Eq. 5); device twin: `roi.build_roi_prompt`."""
        sentence = f"The question requires greater attention to the {display_name(label)}."
        return self.tokenizer.encode(sentence)

    def prefix(self, global_tokens: int) -> Interleaved:
        """What every prompt of a scan begins with: all up to the end of the global tokens."""
        prompt = Interleaved()
        prompt.add([*self._system, *self._user])
        return prompt + self._visual(range(global_tokens))

    def question(
        self,
        question: str,
        choices: Sequence[str],
        global_tokens: int,
        rois: Iterable[Roi] = (),
    ) -> Interleaved:
        """Build the prompt of round 1 (Eq. 4). `rois` come before the question (`initial_roi`)."""
        prompt = self.prefix(global_tokens)
        for label, rows in rois:
            prompt = prompt + self._attend(label, rows)
        prompt.add(self.tokenizer.encode(with_choices(question, choices)))
        prompt.add(self.open_assistant)
        return prompt

    def look_again(self, rois: Iterable[Roi]) -> Interleaved:
        """Build the user's turn between two rounds: each organ's sentence and ROI tokens (Eq. 6).

        Device twin: `roi.roi_turn`.
        """
        turn = Interleaved()
        turn.add(self.open_user)
        for label, rows in rois:
            turn = turn + self._attend(label, rows)
        turn.add(self.open_assistant)
        return turn

    def answer(self, text: str, target: bool) -> Interleaved:
        """Build a round's text and the token that ends it."""
        answer = Interleaved()
        answer.add([*self.tokenizer.encode(text), self.tokenizer.im_end], target)
        return answer

    def _attend(self, label: int, rows: Sequence[int] | np.ndarray) -> Interleaved:
        prompt = Interleaved()
        prompt.add(self.attention_sentence(label))
        return prompt + self._visual(rows)

    def _visual(self, rows: Sequence[int] | np.ndarray) -> Interleaved:
        n, tokenizer = len(rows), self.tokenizer
        tokens = [tokenizer.vision_start, *[tokenizer.image_pad] * n, tokenizer.vision_end]
        return Interleaved(tokens, [TEXT, *map(int, rows), TEXT], [False] * (n + 2))


def with_choices(question: str, choices: Sequence[str]) -> str:
    """The question, its options lettered below it."""
    lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False)]
    return "\n".join([question, *lines])


def initial_rois(
    question: str, roi_index: Mapping[int, Sequence[int] | np.ndarray]
) -> list[tuple[int, Sequence[int] | np.ndarray]]:
    """Find the ROI of the organs that a question names, for `initial_roi` (Eq. 2).

    Returns:
        at most `INITIAL_ORGANS` organs that have ROI tokens, first mention first.
    """
    named = [label for mention in labels_named(question) for label in mention.labels]
    present = [label for label in dict.fromkeys(named) if label in roi_index]
    return [(label, roi_index[label]) for label in present[:INITIAL_ORGANS]]
