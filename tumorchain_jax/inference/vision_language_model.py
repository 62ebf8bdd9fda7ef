"""Qwen2.5-VL with its pictures: chat, to check weights that were imported or trained.

model = VisionLanguageModel.load(Path("imported"))    # tumorchain convert import --tower
model = VisionLanguageModel.load(Path("run/export"))  # of the training task vision_language
print(model.look([Image.open("lesion.png")], "Describe the lesion."))
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from PIL import Image

from tumorchain_jax.convert.imported import SOURCE, Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.inference.language_model import LENGTHS, LanguageModel
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.model import QwenVL, QwenVLConfig
from tumorchain_jax.models.qwen_vl.pictures import (
    PictureConfig,
    bucketed,
    patches_of,
    read_picture_config,
)
from tumorchain_jax.models.qwen_vl.plan import bucket_for
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.prompt import Spoken, encode_chat, open_answer
from tumorchain_jax.models.qwen_vl.tower import TowerConfig
from tumorchain_jax.reasoning.generate import GREEDY, Sampling
from tumorchain_jax.reasoning.text import Embedded, continue_text, next_logits
from tumorchain_jax.weights.vision_language_folder import is_vision_language, load_vision_language

PREPROCESSOR = "preprocessor_config.json"


class VisionLanguageModel:
    """A language model that is shown pictures.

    Attributes:
        language: its decoder.
        model: tower and decoder together.
        params: those of `model` that embedding a prompt takes.
        limits: how pictures are prepared.
        tokenizer: ours, which spells out what looks like a control in a text.
    """

    def __init__(
        self,
        language: LanguageModel,
        config: QwenVLConfig,
        tower: Any,
        limits: PictureConfig,
        tokenizer: Tokenizer,
    ):
        self.language, self.limits, self.tokenizer = language, limits, tokenizer
        self.model = QwenVL(config)
        self.params = {
            "tower": jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tower),
            "decoder": {"embed_tokens": language.params["embed_tokens"]},
        }
        self._embed = jax.jit(partial(self.model.apply, method="embed"))

    @classmethod
    def load(cls, folder: Path) -> "VisionLanguageModel":
        """Read an imported folder, or one that training exported.

        Raises:
            InputError: it is none, or has no tower, tokenizer or picture limits.
        """
        if is_vision_language(folder):
            return cls._exported(folder)
        imported = Imported(folder)
        if "tower" not in imported.config or imported.family.name == "peft":
            found = "an adapter" if imported.family.name == "peft" else "no tower"
            expected, hint = "a vision tower", "import a Qwen2.5-VL with --tower"
            raise InputError(folder, "config.json", found, expected, hint)
        path = folder / SOURCE / PREPROCESSOR
        limits = read_picture_config(path, read_json(path))
        tower = TowerConfig.from_dict(imported.config["tower"])
        config = QwenVLConfig(tower, decoder_from_dict(imported.config["decoder"]))
        params: dict[str, Any] = {}

        def restore() -> dict[str, Any]:
            params.update(imported.restore())
            return params

        language = LanguageModel.of(imported, restore)
        tokenizer = Tokenizer.load(folder / SOURCE)
        return cls(language, config, params["tower"], limits, tokenizer)

    @classmethod
    def _exported(cls, folder: Path) -> "VisionLanguageModel":
        found = load_vision_language(folder)
        params = unflatten(found.params)
        tokenizer, config = found.tokenizer, found.model
        language = LanguageModel(
            config.decoder, params["decoder"], tokenizer.backend, [tokenizer.im_end], config.lora
        )
        return cls(language, config, params["tower"], found.pictures, tokenizer)

    def look(
        self,
        pictures: Sequence[Image.Image],
        text: str,
        limit: int = 128,
        sampling: Sampling = GREEDY,
        seed: int = 0,
    ) -> str:
        """Answer a question about pictures.

        Raises:
            InputError: a picture cannot be shown, or the text would be read as a place for one.
        """
        asked = ("user", [*("" for _ in pictures), text])
        [answer] = self.answer([(pictures, [asked])], limit, sampling, seed)
        return answer

    def answer(
        self,
        chats: Sequence[tuple[Sequence[Image.Image], Sequence[Spoken]]],
        limit: int = 128,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        length: int = 0,
    ) -> list[str]:
        """Write the next answer of chats, each as if it were alone.

        Args:
            chats: the pictures of each, and its turns so far (`models/qwen_vl/prompt.py`).
            length: positions of the prompts at least, so that few lengths are compiled.

        Raises:
            InputError: as `look`.
        """
        tokens, valid, embedded = self._prompts(chats, [""] * len(chats), length)
        language = self.language
        written, count = continue_text(
            language.decoder,
            language.params,
            tokens,
            valid,
            language.end_tokens,
            jnp.broadcast_to(jax.random.key(seed), (len(chats),)),
            embedded,
            limit=limit,
            sampling=sampling,
        )
        rows = zip(np.asarray(written), np.asarray(count), strict=True)
        decode = language.tokenizer.decode
        return [decode(row[: int(n)], skip_special_tokens=True) for row, n in rows]

    def next_logits(
        self,
        chats: Sequence[tuple[Sequence[Image.Image], Sequence[Spoken]]],
        begun: Sequence[str],
        length: int = 0,
    ) -> Float[np.ndarray, "B V"]:
        """Logits of the token after answers that are begun; the rest as `answer`."""
        tokens, valid, embedded = self._prompts(chats, begun, length)
        language = self.language
        return np.asarray(
            next_logits(language.decoder, language.params, tokens, valid, embedded), np.float32
        )

    def _prompts(
        self,
        chats: Sequence[tuple[Sequence[Image.Image], Sequence[Spoken]]],
        begun: Sequence[str],
        length: int,
    ) -> tuple[Any, Any, Embedded]:
        tower, tokenizer = self.model.config.tower, self.tokenizer
        cut = [[patches_of(each, tower, self.limits) for each in pictures] for pictures, _ in chats]
        grids = [[grid for _, grid in row] for row in cut]
        for own in grids:
            bucket_for(own)  # before anything is tokenized
        opened = open_answer(tokenizer)
        rows = [
            [*encode_chat(tokenizer, turns, own)[0], *opened, *tokenizer.encode(start)]
            for (_, turns), own, start in zip(chats, grids, begun, strict=True)
        ]
        longest = max(length, *map(len, rows))
        shape = (len(rows), -(-longest // LENGTHS) * LENGTHS)
        tokens, valid = np.zeros(shape, np.int32), np.zeros(shape, bool)
        for number, row in enumerate(rows):
            tokens[number, -len(row) :], valid[number, -len(row) :] = row, True
        is_picture = valid & (tokens == tokenizer.image_pad)
        places = rope_positions(is_picture, valid, grids)
        arrays = (jnp.asarray(each) for each in (tokens, is_picture))
        embeddings = self._embed({"params": self.params}, bucketed(cut, tower), *arrays)
        return (
            jnp.asarray(tokens),
            jnp.asarray(valid),
            Embedded(embeddings, *map(jnp.asarray, places)),
        )
