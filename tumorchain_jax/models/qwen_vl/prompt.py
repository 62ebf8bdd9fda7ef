"""Where pictures stand in a prompt: one placeholder each in the chat template, a token for each
merge group of the picture in what the decoder reads.
"""

from collections.abc import Sequence

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.qwen_vl.plan import MERGE, Grid

PLACEHOLDER = "<|image_pad|>"
RESERVED = (PLACEHOLDER, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")


def check_words(text: str) -> None:
    """Refuse words that would be read as a place for a picture.

    Raises:
        InputError: it names them.
    """
    for each in RESERVED:
        if each in text:
            raise InputError("prompt", "text", each, "words alone", "leave it out of the text")


def with_places(tokens: Sequence[int], grids: Sequence[Grid], placeholder: int) -> list[int]:
    """Token ids in which the placeholder of each picture is repeated for all its visual tokens.

    Raises:
        InputError: there are more or fewer placeholders than pictures.
    """
    found = sum(token == placeholder for token in tokens)
    if found != len(grids):
        expected, hint = f"{len(grids)}, one for each picture", "name each picture once"
        raise InputError("prompt", PLACEHOLDER, str(found), expected, hint)
    left = iter(grids)
    written: list[int] = []
    for token in tokens:
        count = 1
        if token == placeholder:
            rows, columns = next(left)
            count = rows * columns // MERGE**2
        written += [token] * count
    return written
