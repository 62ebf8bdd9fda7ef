"""A vocabulary small enough for small models, with whole words in it."""

import pytest

from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.models.language.chat_template import SYSTEM
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.reasoning.prompt import Chat


@pytest.fixture(scope="session")
def chat() -> Chat:
    """The template over 512 tokens, among them whole words such as ` liver` and ` kidney`."""
    organs = [display_name(label) for label in range(1, len(ORGANS))]
    sentences = [f"The question requires greater attention to the {organ}." for organ in organs]
    template = [f"system\n{SYSTEM}", "user\n", "assistant\n", " naïve", " 肝"] * 3
    whole = " spleen liver pancreas stomach colon aorta bladder heart lung left right kidney"
    return Chat(Tokenizer.train([*sentences, *template, *[whole] * 30], 512))
