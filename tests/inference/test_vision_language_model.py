"""Qwen2.5-VL with pictures on the command line, against transformers' own pipeline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.text import printable
from tumorchain_jax.models.language.tokenizer import Tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")

pytestmark = pytest.mark.program
WORDS = "You are a helpful assistant. system user The lesion is benign or malignant, and so on."
VOCABULARY = 330
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen2.5-VL's writes a chat with pictures."""
LIMITS = {"min_pixels": 3136, "max_pixels": 12_544}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([WORDS] * 3, VOCABULARY)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Any:
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer.token_bytes),
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
        image_token_id=tokenizer.image_pad,
        vision_start_token_id=tokenizer.vision_start,
        vision_end_token_id=tokenizer.vision_end,
    )
    found = transformers.Qwen2_5_VLForConditionalGeneration(config)
    torch.manual_seed(0)
    for name, parameter in found.named_parameters():
        torch.nn.init.normal_(parameter, float("norm" in name or "ln_q" in name), 0.25)
    return found.eval()


@pytest.fixture(scope="module")
def folder(model: Any, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as published, as `theirs`; imported with its tower and without; two pictures."""
    folder = tmp_path_factory.mktemp("vision")
    model.save_pretrained(folder / "theirs")
    tokenizer.backend.save_pretrained(folder / "theirs")
    ends = {"eos_token_id": tokenizer.im_end}
    (folder / "theirs" / "generation_config.json").write_text(json.dumps(ends))
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


def chat(
    folder: Path, *pictures: str, model: str = "ours", prompt: str = "The lesion is"
) -> list[str]:
    shown = [each for name in pictures for each in ("--image", str(folder / name))]
    return ["chat", "-c", str(folder / model), *shown, "-p", prompt, "--tokens", "12"]


@pytest.mark.parametrize("pictures", [("a.png",), ("a.png", "b.png")])
def test_answers_about_pictures_are_those_of_transformers(
    pictures: tuple[str, ...],
    model: Any,
    tokenizer: Tokenizer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = {"shortest_edge": LIMITS["min_pixels"], "longest_edge": LIMITS["max_pixels"]}
    processor = pil.Qwen2VLImageProcessorPil(size=limits)
    opened = [Image.open(folder / name) for name in pictures]
    seen = processor(images=opened, return_tensors="pt")
    backend = tokenizer.backend
    content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": "The lesion is"}]
    chat_of_one = [{"role": "user", "content": content}]
    text = backend.apply_chat_template(
        chat_of_one, chat_template=TEMPLATE, add_generation_prompt=True, tokenize=False
    )
    for count in (seen["image_grid_thw"].prod(dim=1) // 4).tolist():
        text = text.replace("<|image_pad|>", "<|visual|>" * count, 1)
    row = tokenizer.encode_template(text.replace("<|visual|>", "<|image_pad|>"))
    tokens = torch.tensor([row])
    with torch.no_grad():
        written = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            mm_token_type_ids=(tokens == tokenizer.image_pad).int(),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=tokenizer.im_end,
            pad_token_id=tokenizer.pad,
            **seen,
        )[0, tokens.shape[1] :]
    expected = printable(backend.decode(written, skip_special_tokens=True))
    capsys.readouterr()
    assert main(chat(folder, *pictures)) == 0
    assert capsys.readouterr().out == f"{expected}\n"
    assert len(expected) > 3


def test_what_cannot_be_shown_is_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "text.png").write_text("no picture")
    Image.new("I;16", (40, 40)).save(folder / "deep.png")
    Image.new("L", (4000, 4)).save(folder / "long.png")
    cases = [
        (chat(folder, "a.png", prompt="is <|image_pad|> so"), "<|image_pad|>"),
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
