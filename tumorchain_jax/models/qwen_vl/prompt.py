"""Chats about pictures as token ids: ChatML, with a token for each merge group of a picture."""

from collections.abc import Iterable, Sequence

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.chat_template import SYSTEM
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.plan import MERGE, Grid

PLACEHOLDER = "<|image_pad|>"
RESERVED = (PLACEHOLDER, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")
Tokens = list[int]
Spoken = tuple[str, Sequence[str]]
"""A role, and what it says: texts with the place of a picture between each two."""


def check_words(text: str, source: object = "prompt") -> None:
    """Refuse words that would be read as a place for a picture.

    Raises:
        InputError: it names them.
    """
    for each in RESERVED:
        if each in text:
            raise InputError(source, "text", each, "words alone", "leave it out of the text")


def encode_chat(
    tokenizer: Tokenizer, turns: Iterable[Spoken], grids: Sequence[Grid], source: object = "prompt"
) -> tuple[Tokens, list[tuple[int, int]]]:
    """Token ids of a chat, as the chat template of Qwen2.5-VL writes it.

    Without a system's turn the template's own comes first. Texts are data: `<|im_end|>` in one is
    spelt out.

    Args:
        turns: of `system`, `user` and `assistant`.
        grids: the pictures, in the order of their places.
        source: named in errors.

    Returns:
        the ids, and where in them the answers of the assistant are, each with the token that ends
        it.

    Raises:
        InputError: a text would be read as a place for a picture, or there are more or fewer places
            than pictures.
    """
    turns = list(turns)
    if not turns or turns[0][0] != "system":
        turns = [("system", (SYSTEM,)), *turns]
    places = sum(len(texts) - 1 for _, texts in turns)
    if places != len(grids):
        expected, hint = f"{len(grids)}, one for each picture", "name each picture once"
        raise InputError(source, "places of pictures", str(places), expected, hint)
    left, tokens, answers = iter(grids), [], []
    newline = tokenizer.encode("\n")
    for role, (first, *rest) in turns:
        for text in (first, *rest):
            check_words(text, source)
        tokens.append(tokenizer.im_start)
        if role == "assistant":  # apart, as where the model writes it
            tokens += tokenizer.encode(f"{role}\n")
            answers.append((len(tokens), len(tokens)))
            tokens += tokenizer.encode(first)
        else:
            tokens += tokenizer.encode(f"{role}\n{first}")
        for text in rest:
            rows, columns = next(left)
            visual = [tokenizer.image_pad] * (rows * columns // MERGE**2)
            tokens += [tokenizer.vision_start, *visual, tokenizer.vision_end]
            tokens += tokenizer.encode(text)
        tokens.append(tokenizer.im_end)
        if role == "assistant":
            answers[-1] = (answers[-1][0], len(tokens))
        tokens += newline
    return tokens, answers


def open_answer(tokenizer: Tokenizer) -> Tokens:
    """What stands between a chat and the next answer of the assistant."""
    return [tokenizer.im_start, *tokenizer.encode("assistant\n")]
