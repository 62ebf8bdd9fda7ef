"""Text <-> token ids, with a chat template's tokens and the bytes behind every id."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as BackendTokenizer

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.models.language.chat_template import CHATML, SpecialTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = CHATML.special_tokens
"""Special tokens of a tokenizer trained here, and of every family so far."""

# How Qwen2 cuts a text before byte-pair encoding: contractions, words, single digits, the rest.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """A byte-level tokenizer with the special tokens of a chat template.

    Attributes:
        special_tokens: as they are spelled.
        pad, im_start, im_end, vision_start, vision_end, image_pad: ids of the special tokens.
        token_bytes: the bytes that each id stands for; special tokens stand for none.
    """

    def __init__(
        self,
        tokenizer: BackendTokenizer,
        source: str = "tokenizer",
        special_tokens: SpecialTokens = SPECIAL_TOKENS,
    ):
        tokenizer.encode_special_tokens = True  # spell out `<|im_start|>` in a text
        # As transformers does: a text is encoded whole and alone, whatever the file asks for, and
        # the file written has a post-processor, if only one that adds nothing.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if tokenizer.post_processor is None:
            tokenizer.post_processor = processors.TemplateProcessing("$A:0", "$A:0 $B:1", [])
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        missing = [token for token in special_tokens if token not in vocabulary]
        if missing:
            raise InputError(
                source,
                "special tokens",
                f"no {' '.join(missing)}",
                "Qwen's chat and vision tokens",
                "use the tokenizer of a Qwen2.5-VL or Qwen3 checkpoint",
            )
        self.special_tokens = special_tokens
        ids = [vocabulary[token] for token in special_tokens]
        self.pad, self.im_start, self.im_end = ids[:3]
        self.vision_start, self.vision_end, self.image_pad = ids[3:]
        self.token_bytes = _token_bytes(tokenizer)

    @cached_property
    def backend(self) -> "PreTrainedTokenizerFast":
        """The same tokenizer as transformers', whose import takes most of a second."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(tokenizer_object=self._tokenizer)

    @classmethod
    def load(cls, folder: Path, special_tokens: SpecialTokens = SPECIAL_TOKENS) -> "Tokenizer":
        """The tokenizer of a checkpoint folder (`tokenizer.json`), without any network.

        Args:
            special_tokens: of the model family's chat template.

        Raises:
            InputError: there is none, it is damaged, or it lacks the special tokens.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise InputError(folder, "tokenizer.json", "none", "a tokenizer", "complete the folder")
        try:
            tokenizer = BackendTokenizer.from_file(str(path))
        except Exception as error:  # the parser's errors have no type of their own
            raise InputError(
                path, "tokenizer", repr(str(error)), "a tokenizer", "replace the file"
            ) from error
        return cls(tokenizer, str(path), special_tokens)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "Tokenizer":
        """Learn byte-pair merges from texts, over Qwen2's pre-tokenizer."""
        tokenizer = BackendTokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`."""
        write_file(folder / "tokenizer.json", self._tokenizer.to_str(pretty=True).encode())

    def encode(self, text: str) -> list[int]:
        """Ids of a text. The text is data: `<|im_start|>` in it is spelt out, never a control."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_template(self, text: str) -> list[int]:
        """Ids of a piece of the chat template: special tokens in it are controls."""
        self._tokenizer.encode_special_tokens = False
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        finally:
            self._tokenizer.encode_special_tokens = True

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of some ids, which may end within a character. An id of the padded vocabulary,
        which no token has, stands for none.
        """
        return b"".join(self.token_bytes[i] for i in ids if i < len(self.token_bytes))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")


def _token_bytes(tokenizer: BackendTokenizer) -> list[bytes]:
    """Undo byte-level BPE's printable alphabet."""
    byte_of = {char: byte for byte, char in enumerate(_byte_alphabet())}
    added = tokenizer.get_added_tokens_decoder()
    vocabulary = tokenizer.get_vocab()
    table = [b""] * (max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        if index not in added:
            table[index] = bytes(byte_of[char] for char in token)
        elif not added[index].special:  # Qwen's <tool_call> and the like: ordinary text
            table[index] = token.encode()
    return table


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte: itself if printable, else the next after U+00FF."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
