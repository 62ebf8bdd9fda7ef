"""The chat template of a language model: the text around the turns, and its special tokens.

Each family has one, in its `convert.py`. Here is the one that most are a variant of: ChatML, as
Qwen2.5 writes it.
"""

from dataclasses import dataclass
from typing import NamedTuple


class SpecialTokens(NamedTuple):
    """The control tokens that a prompt is made with, as the tokenizer spells them.

    Attributes:
        im_start: begins a turn.
        im_end: ends a turn; that of the assistant ends an answer.
        vision_start, vision_end: stand around visual tokens.
        image_pad: holds the place of a visual token.
    """

    pad: str
    im_start: str
    im_end: str
    vision_start: str
    vision_end: str
    image_pad: str


@dataclass(frozen=True)
class ChatTemplate:
    """How a conversation is written, as text in which special tokens are spelled out.

    Attributes:
        system: the turn before the user's first; empty where the family has none by default.
        open_user: begins the user's turn.
        close_user: ends the user's turn.
        open_assistant: begins the assistant's turn, up to the first token that the model writes.
        after_answer: follows the token that ends an answer, before the user's next turn.
    """

    special_tokens: SpecialTokens
    system: str
    open_user: str
    close_user: str
    open_assistant: str
    after_answer: str


SYSTEM = "You are a helpful assistant."
CHATML = ChatTemplate(
    SpecialTokens(
        pad="<|endoftext|>",
        im_start="<|im_start|>",
        im_end="<|im_end|>",
        vision_start="<|vision_start|>",
        vision_end="<|vision_end|>",
        image_pad="<|image_pad|>",
    ),
    system=f"<|im_start|>system\n{SYSTEM}<|im_end|>\n",
    open_user="<|im_start|>user\n",
    close_user="<|im_end|>\n",
    open_assistant="<|im_start|>assistant\n",
    after_answer="\n",
)
