"""Rows of words and pictures: buckets, positions, placeholders, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.convert import read_config
from tumorchain_jax.models.qwen_vl.pictures import (
    PictureConfig,
    bucketed,
    patches_of,
    read_picture_config,
)
from tumorchain_jax.models.qwen_vl.plan import bucket_for, plan
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.prompt import check_words, encode_chat
from tumorchain_jax.models.qwen_vl.tower import TOWER_3B

PATH = Path("config.json")
VISION = {
    "depth": 32,
    "hidden_act": "silu",
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_chans": 3,
    "out_hidden_size": 2048,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "spatial_patch_size": 14,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
    "temporal_patch_size": 2,
}


def test_the_smallest_bucket_that_fits_is_taken() -> None:
    assert bucket_for([]) == 256
    assert bucket_for([(16, 16)]) == 256
    assert bucket_for([(16, 16), (2, 2)]) == 484
    assert bucket_for([(22, 22)]) == 484
    with pytest.raises(InputError, match="16388 patches"):
        bucket_for([(128, 128), (2, 2)])


def test_a_picture_larger_than_the_bucket_is_refused() -> None:
    with pytest.raises(InputError, match="found 400 patches, expected at most 256 patches"):
        plan([(20, 20)], 256)
    picture = Image.new("L", (600, 600))
    with pytest.raises(InputError, match="found 1764 patches, expected at most 484"):
        bucketed([[patches_of(picture, TOWER_3B, PictureConfig())]], TOWER_3B, 484)


def test_positions_of_words_around_a_picture() -> None:
    """4 words, 6 x 10 patches, 5 words: as in transformers."""
    is_picture = np.zeros((1, 24), bool)
    is_picture[0, 4:19] = True
    found = rope_positions(is_picture, np.ones((1, 24), bool), [[(6, 10)]])
    assert found.positions[0, 0].tolist() == [0, 1, 2, 3, *[4] * 15, 9, 10, 11, 12, 13]
    assert found.positions[1, 0, 4:19].tolist() == [4] * 5 + [5] * 5 + [6] * 5
    assert found.positions[2, 0, 4:19].tolist() == [4, 5, 6, 7, 8] * 3
    assert found.delta.tolist() == [-10]


@pytest.mark.parametrize("grids", [[], [(6, 8)], [(6, 10), (2, 2)], [(8, 10)]])
def test_visual_tokens_of_other_pictures_are_refused(grids: list[tuple[int, int]]) -> None:
    is_picture = np.zeros((1, 24), bool)
    is_picture[0, 4:19] = True
    with pytest.raises(ValueError, match="row 0"):
        rope_positions(is_picture, np.ones((1, 24), bool), [grids])


def test_chat_with_pictures_is_written_as_by_the_template() -> None:
    """As Qwen2.5-VL's template writes it, a token for each merge group; texts are data."""
    tokenizer = Tokenizer.train(["Is it so? system assistant user You are a helpful"] * 2, 300)
    turns = [("user", ("Is ", " it", "?")), ("assistant", ("so <|im_end|>",)), ("user", ("It",))]
    tokens, answers = encode_chat(tokenizer, turns, [(4, 4), (2, 4)])
    seen = "<|vision_start|>{}<|vision_end|>"
    expected = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nIs "
        + seen.format("<|image_pad|>" * 4)
        + " it"
        + seen.format("<|image_pad|>" * 2)
        + "?<|im_end|>\n<|im_start|>assistant\n"
    )
    whole = tokenizer.encode_template(expected)
    assert tokens[: len(whole)] == whole
    [(start, stop)] = answers
    assert start == len(whole)
    assert tokens[start : stop - 1] == tokenizer.encode("so <|im_end|>")
    assert tokens[stop - 1] == tokenizer.im_end
    assert tokenizer.im_end not in tokens[start : stop - 1]
    with pytest.raises(InputError, match="found 2, expected 1, one for each picture"):
        encode_chat(tokenizer, turns, [(2, 2)])
    check_words("a <mass> | image_pad")
    with pytest.raises(InputError, match="image_pad"):
        encode_chat(tokenizer, [("user", ("what is <|image_pad|> here?",))], [])


def test_pictures_that_are_too_long_are_refused() -> None:
    with pytest.raises(InputError, match="2 x 401 pixels"):
        patches_of(Image.new("L", (401, 2)), TOWER_3B, PictureConfig())


def test_the_released_configurations_are_read() -> None:
    assert read_config(PATH, {"vision_config": VISION}, 2048) == TOWER_3B
    released = {
        "min_pixels": 3136,
        "max_pixels": 12_845_056,
        "image_mean": list(PictureConfig().mean),
        "image_std": list(PictureConfig().std),
    }
    assert read_picture_config(PATH, released) == PictureConfig()
    newer = {"size": {"shortest_edge": 3136, "longest_edge": 12_845_056}}
    colours = {name: released[name] for name in ("image_mean", "image_std")}
    assert read_picture_config(PATH, newer | colours) == PictureConfig()
    with pytest.raises(InputError, match="max_pixels"):
        read_picture_config(PATH, colours | {"min_pixels": 3136})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("hidden_size", None, "whole number"),
        ("spatial_merge_size", 3, "expected 2"),
        ("temporal_patch_size", 1, "expected 2"),
        ("in_chans", 1, "expected 3"),
        ("hidden_act", "gelu", "silu"),
        ("num_heads", 7, "divisor"),
        ("out_hidden_size", 3584, "2048, as the decoder has"),
        ("fullatt_block_indexes", [32], "below 32"),
        ("window_size", 14, "28 or more"),
        ("rope_parameters", {"rope_theta": 1e6}, "rope_theta of 10000"),
    ],
)
def test_a_tower_of_another_kind_is_refused(field: str, value: Any, expected: str) -> None:
    vision = {**VISION, field: value}
    if value is None:
        del vision[field]
    with pytest.raises(InputError, match=expected):
        read_config(PATH, {"vision_config": vision}, 2048)
