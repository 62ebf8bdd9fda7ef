"""Qwen2.5-VL with its pictures: chat, to check weights that were imported with their tower.

model = VisionLanguageModel.load(Path("imported"))    # tumorchain convert import --tower
print(model.look([Image.open("lesion.png")], "Describe the lesion."))
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, UnidentifiedImageError

from tumorchain_jax.convert.imported import SOURCE, Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.inference.language_model import LENGTHS, LanguageModel
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.qwen_vl.convert import from_dict
from tumorchain_jax.models.qwen_vl.model import QwenVL, QwenVLConfig
from tumorchain_jax.models.qwen_vl.pictures import (
    PictureConfig,
    bucketed,
    patches_of,
    read_picture_config,
)
from tumorchain_jax.models.qwen_vl.plan import bucket_for
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.prompt import PLACEHOLDER, check_words, with_places
from tumorchain_jax.reasoning.generate import GREEDY, Sampling
from tumorchain_jax.reasoning.text import Embedded, continue_text

PREPROCESSOR = "preprocessor_config.json"


class VisionLanguageModel:
    """A language model that is shown pictures.

    Attributes:
        language: its decoder and tokenizer.
        model: tower and decoder together.
        params: those of `model` that embedding a prompt takes.
        limits: how pictures are prepared.
    """

    def __init__(
        self, language: LanguageModel, config: QwenVLConfig, tower: Any, limits: PictureConfig
    ):
        self.language, self.limits = language, limits
        self.model = QwenVL(config)
        self.params = {
            "tower": jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tower),
            "decoder": {"embed_tokens": language.params["embed_tokens"]},
        }
        self._embed = jax.jit(partial(self.model.apply, method="embed"))

    @classmethod
    def load(cls, folder: Path) -> "VisionLanguageModel":
        """Read an imported folder.

        Raises:
            InputError: it is none, or has no tower, tokenizer or picture limits.
        """
        imported = Imported(folder)
        if "tower" not in imported.config:
            expected, hint = "a vision tower", "import a Qwen2.5-VL with --tower"
            raise InputError(folder, "config.json", "no tower", expected, hint)
        path = folder / SOURCE / PREPROCESSOR
        limits = read_picture_config(path, read_json(path))
        tower = from_dict(imported.config["tower"])
        config = QwenVLConfig(tower, decoder_from_dict(imported.config["decoder"]))
        params: dict[str, Any] = {}

        def restore() -> dict[str, Any]:
            params.update(imported.restore())
            return params

        language = LanguageModel.of(imported, restore)
        return cls(language, config, params["tower"], limits)

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
        check_words(text)
        tower = self.model.config.tower
        cut = [patches_of(picture, tower, self.limits) for picture in pictures]
        grids = [grid for _, grid in cut]
        bucket_for(grids)  # before anything is tokenized
        content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
        prompt = self.language.prompt([{"role": "user", "content": content}])
        placeholder = self.language.tokenizer.convert_tokens_to_ids(PLACEHOLDER)
        row = with_places(prompt, grids, placeholder)
        length = -(-len(row) // LENGTHS) * LENGTHS
        tokens, valid = np.zeros((1, length), np.int32), np.zeros((1, length), bool)
        tokens[0, -len(row) :], valid[0, -len(row) :] = row, True
        is_picture = valid & (tokens == placeholder)
        places = rope_positions(is_picture, valid, [grids])
        arrays = (jnp.asarray(each) for each in (tokens, is_picture))
        embeddings = self._embed({"params": self.params}, bucketed([cut], tower), *arrays)
        language = self.language
        written, count = continue_text(
            language.decoder,
            language.params,
            jnp.asarray(tokens),
            jnp.asarray(valid),
            language.end_tokens,
            jnp.broadcast_to(jax.random.key(seed), (1,)),
            Embedded(embeddings, *map(jnp.asarray, places)),
            limit=limit,
            sampling=sampling,
        )
        answer = np.asarray(written)[0, : int(count[0])]
        return language.tokenizer.decode(answer, skip_special_tokens=True)


def open_picture(path: Path) -> Image.Image:
    """Read a picture file.

    Raises:
        InputError: it cannot be read, or is turned by its EXIF tag, has several frames or more than
            8 bits.
    """
    expected, hint = "a picture of 8 bits, such as a PNG", "convert it"
    try:
        with Image.open(path) as picture:
            picture.load()
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        raise InputError(path, "picture", str(error)[:80], expected, hint) from error
    if picture.mode not in ("1", "L", "P", "RGB"):
        raise InputError(path, "mode", picture.mode, expected, hint)
    frames = getattr(picture, "n_frames", 1)
    if frames > 1:
        raise InputError(path, "frames", str(frames), "one", hint)
    if picture.getexif().get(0x0112, 1) != 1:
        raise InputError(path, "EXIF", "turned", "a picture that is upright as stored", hint)
    return picture
