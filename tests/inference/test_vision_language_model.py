"""Qwen2.5-VL with pictures on the command line, against transformers' own pipeline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import models, pre_tokenizers

from tumorchain_jax.cli.main import main

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")

pytestmark = pytest.mark.program
SPECIAL = ["</s>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
WORDS = [*SPECIAL, "user", *(f"w{i}" for i in range(27))]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|> <|image_pad|> <|vision_end|> {% else %}{{ c.text }} {% endif %}"
    "{% endfor %}{% endfor %}"
)
LIMITS = {"min_pixels": 3136, "max_pixels": 12_544}


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(WORDS),
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 24,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
        },
        tie_word_embeddings=False,
        image_token_id=2,
        vision_start_token_id=1,
        vision_end_token_id=3,
    )
    found = transformers.Qwen2_5_VLForConditionalGeneration(config)
    torch.manual_seed(0)
    for name, parameter in found.named_parameters():
        torch.nn.init.normal_(parameter, float("norm" in name or "ln_q" in name), 0.25)
    return found.eval()


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as published, as `theirs`; imported with its tower and without; two pictures."""
    folder = tmp_path_factory.mktemp("vision")
    model.save_pretrained(folder / "theirs")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    backend = BackendTokenizer(models.WordLevel(vocabulary, unk_token="</s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "theirs")
    processor = pil.Qwen2VLImageProcessorPil()
    limits = LIMITS | {"image_mean": processor.image_mean, "image_std": processor.image_std}
    (folder / "theirs" / "preprocessor_config.json").write_text(json.dumps(limits))
    for name, more in (("ours", ["--tower"]), ("blind", [])):
        line = ["convert", "import", "-i", str(folder / "theirs"), "-o", str(folder / name), *more]
        assert main(line) == 0
    rng = np.random.default_rng(0)
    for name, shape in (("a", (90, 120)), ("b", (70, 60, 3))):
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(folder / f"{name}.png")
    return folder


def chat(folder: Path, *pictures: str, model: str = "ours", prompt: str = "w3 w4") -> list[str]:
    shown = [each for name in pictures for each in ("--image", str(folder / name))]
    return ["chat", "-c", str(folder / model), *shown, "-p", prompt, "--tokens", "12"]


@pytest.mark.parametrize("pictures", [("a.png",), ("a.png", "b.png")])
def test_answers_about_pictures_are_those_of_transformers(
    pictures: tuple[str, ...], model: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"shortest_edge": LIMITS["min_pixels"], "longest_edge": LIMITS["max_pixels"]}
    processor = pil.Qwen2VLImageProcessorPil(size=limits)
    opened = [Image.open(folder / name) for name in pictures]
    seen = processor(images=opened, return_tensors="pt")
    counts = (seen["image_grid_thw"].prod(dim=1) // 4).tolist()
    row = [WORDS.index("user"), *(t for n in counts for t in (1, *[2] * n, 3))]
    tokens = torch.tensor([[*row, WORDS.index("w3"), WORDS.index("w4")]])
    with torch.no_grad():
        written = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            mm_token_type_ids=(tokens == 2).int(),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=0,
            pad_token_id=0,
            **seen,
        )[0, tokens.shape[1] :]
    expected = [WORDS[token] for token in written.tolist() if token]
    capsys.readouterr()
    assert main(chat(folder, *pictures)) == 0
    assert capsys.readouterr().out.split() == expected
    assert len(expected) > 3


def test_what_cannot_be_shown_is_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "text.png").write_text("no picture")
    Image.new("I;16", (40, 40)).save(folder / "deep.png")
    Image.new("L", (4000, 4)).save(folder / "long.png")
    cases = [
        (chat(folder, "a.png", prompt="w1 <|image_pad|> w2"), "<|image_pad|>"),
        (chat(folder, "a.png", model="blind"), "--tower"),
        (chat(folder, "text.png"), "text.png"),
        (chat(folder, "deep.png"), "deep.png"),
        (chat(folder, "none.png"), "none.png"),
        (chat(folder, "long.png"), "4 x 4000 pixels"),
        ([*chat(folder, "a.png")[:5], "--seed", "0"], "--prompt"),
    ]
    capsys.readouterr()
    for line, named in cases:
        assert main(line) == 2, line
        said = capsys.readouterr()
        assert named in said.err
        assert said.err.strip().count("\n") == 0
        assert not said.out
