"""A real language model in our decoder against transformers' own reading of the same GGUF file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.inference.language_model import MODEL, LanguageModel, example_checkpoint

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")
pytestmark = pytest.mark.system(haste=True)

PROMPTS = (
    "What is a tumour?",
    "What is 17 + 25? Explain step by step.",
    "Translate to French: The liver is enlarged, but the spleen is not.",
)
TOKENS = 16


@pytest.fixture(scope="module")
def imported() -> Path:
    return example_checkpoint()


@pytest.fixture(scope="module")
def theirs(imported: Path) -> tuple[Any, Any]:
    """transformers' model and tokenizer."""
    transformers.utils.logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": imported.parent, "gguf_file": MODEL}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=TOKENS, pad_token_id=2, eos_token_id=2
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(**source)


def test_every_weight_is_theirs(imported: Path, theirs: tuple[Any, Any]) -> None:
    ours, state = Imported(imported), theirs[0].state_dict()
    assert len(ours.entries) == 272
    for key in ours.entries:
        for rows, values in ours.pieces(key):
            np.testing.assert_array_equal(values, state[key][rows].numpy(), err_msg=key)


def test_greedy_text_is_theirs(imported: Path, theirs: tuple[Any, Any]) -> None:
    model, tokenizer = theirs
    ours = LanguageModel.load(imported)
    turns = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    prompts = [
        tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
        for turn in turns
    ]
    assert prompts == [
        ours.tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
        for turn in turns
    ]
    written = ours.generate(prompts, TOKENS)
    for prompt, ids in zip(prompts, written, strict=True):
        with torch.no_grad():
            expected = model.generate(torch.tensor([prompt]))[0, len(prompt) :].tolist()
        assert ids == [token for token in expected if token != 2]
    assert len({tuple(ids) for ids in written}) == len(PROMPTS)
