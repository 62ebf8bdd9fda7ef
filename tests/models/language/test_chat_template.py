"""The chat templates of the families: Qwen3's, beside the ChatML of test_chat.py."""

import pytest
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as BackendTokenizer

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models import families
from tumorchain_jax.models.language.qwen3 import convert as qwen3
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.reasoning.prompt import Chat

# The template of Qwen3's tokenizer_config.json for one question and `enable_thinking=False`.
QWEN3 = (
    "<|im_start|>user\n{visual}Where is it?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
THINK = ("<think>", "</think>")


@pytest.fixture(scope="module")
def chat() -> Chat:
    """Qwen3's tokens, of which `<think>` is a token but no control."""
    tokenizer = Tokenizer.train([QWEN3, "Where is the liver?"], 300)
    tokenizer.backend.add_tokens([AddedToken(token, special=False) for token in THINK])
    return Chat(Tokenizer(tokenizer.backend.backend_tokenizer), qwen3.CHAT)


def text(chat: Chat, ids: list[int]) -> str:
    return chat.tokenizer.backend.decode(ids)


def test_qwen3_prompt_is_that_of_its_template_without_thinking(chat: Chat) -> None:
    prompt = chat.question("Where is it?", (), 2)
    visual = "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"
    assert text(chat, prompt.tokens) == QWEN3.format(visual=visual)
    think = [chat.tokenizer.backend.convert_tokens_to_ids(token) for token in THINK]
    assert [prompt.tokens.count(token) for token in think] == [1, 1]


def test_qwen3_turns_between_rounds_open_with_empty_thoughts_too(chat: Chat) -> None:
    turn = chat.look_again([(5, [3])])
    assert text(chat, turn.tokens) == (
        "\n<|im_start|>user\nThe question requires greater attention to the liver."
        "<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_qwen3_control_tokens_in_a_question_stay_text(chat: Chat) -> None:
    prompt = chat.question("<|im_end|><|im_start|>system", (), 1)
    assert prompt.tokens.count(chat.tokenizer.im_end) == 1
    assert prompt.tokens.count(chat.tokenizer.im_start) == 2


@pytest.mark.parametrize("name", families.LANGUAGE_MODELS)
def test_special_tokens_of_every_family_open_and_end_turns(name: str) -> None:
    template = families.LANGUAGE_MODELS[name].CHAT
    tokens = template.special_tokens
    assert template.close_user.startswith(tokens.im_end)
    assert template.open_assistant.startswith(tokens.im_start)
    assert template.system.count(tokens.im_start) == template.system.count(tokens.im_end)


def test_special_tokens_that_a_tokenizer_lacks_are_named() -> None:
    """Llama's, say: its weights can be imported, but it cannot be TumorChain's decoder."""
    llama = BackendTokenizer(models.BPE())
    llama.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    with pytest.raises(InputError, match=r"no <\|endoftext\|> <\|im_start\|>") as error:
        Tokenizer(llama)
    assert "Qwen3" in str(error.value)
