"""A language model alone: prompts of unequal lengths, what ends an answer, bad input."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tumorchain_jax.bench.transformers_models import random_decoder
from tumorchain_jax.cli.main import main
from tumorchain_jax.convert import gguf_file
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.core.downloads import NotAvailable
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable
from tumorchain_jax.inference import language_model
from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.models.language.qwen2.convert import TABLE, transformers_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.weight_map import from_ours
from tumorchain_jax.reasoning.generate import Sampling
from tumorchain_jax.weights.tensor_files import TensorWriter

pytestmark = pytest.mark.program
WORDS = ["</s>", "user", ":", *(f"w{i}" for i in range(27))]
CONFIG = Qwen2Config(
    vocab_size=len(WORDS),
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    tie_word_embeddings=False,
    attention_bias=False,
)
TEMPLATE = "{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random weights and a tokenizer of thirty words, as published."""
    folder = tmp_path_factory.mktemp("published")
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.6, x.shape).astype(np.float32), random_decoder(CONFIG)
    )
    theirs = from_ours(TABLE, params)
    with (folder / "model.safetensors").open("w+b") as stream:
        writer = TensorWriter(stream, {key: (x.dtype, x.shape) for key, x in theirs.items()})
        for key, values in theirs.items():
            writer.write(key, 0, values)
    (folder / "config.json").write_text(json.dumps(transformers_config(CONFIG)))
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    backend = BackendTokenizer(models.WordLevel(vocabulary, unk_token="</s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def imported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours") / "imported"
    import_folder(source, folder)
    return folder


@pytest.fixture(scope="module")
def model(imported: Path) -> LanguageModel:
    return LanguageModel.load(imported)


def test_a_row_is_answered_as_if_it_were_alone(model: LanguageModel) -> None:
    prompts = [[5], [7, 8, 9, 10, 11], [3, 4, 3]]
    together = model.generate(prompts, 12)
    assert together == [model.generate([prompt], 12)[0] for prompt in prompts]
    assert len({tuple(row) for row in together}) == 3


def test_a_longer_limit_goes_on_where_a_shorter_one_stopped(model: LanguageModel) -> None:
    [short], [long] = model.generate([[5, 6]], 4), model.generate([[5, 6]], 9)
    assert long[:4] == short


def test_the_end_is_not_written(model: LanguageModel) -> None:
    rows = [row for seed in range(40) for row in model.generate([[5]], 30, Sampling(1.5), seed)]
    assert any(len(row) < 30 for row in rows), "some end by themselves"
    assert not any(0 in row for row in rows)
    assert model.generate([[5]], 30, Sampling(1.5), 3) == [rows[3]], "the seed decides"


def test_a_conversation_is_put_into_the_template(model: LanguageModel) -> None:
    turns = [{"role": "user", "content": "w3 w4"}]
    [expected] = model.generate([[1, 2, 6, 7]], 5)
    assert model.chat(turns, 5) == " ".join(WORDS[i] for i in expected)


def test_the_command_answers_a_prompt(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "-c", str(imported), "-p", "w3 w4", "--tokens", "5"]) == 0
    said = capsys.readouterr()
    assert set(said.out.split()) <= {*WORDS}
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "0"], "--tokens: found 0"),
        (["--temperature", "-1"], "temperature: found -1"),
        (["-c", "nowhere"], "manifest.json"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "-p", "w3", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_model_without_tokenizer_or_template_is_refused(
    source: Path, model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((source / name).read_bytes())
    import_folder(bare, tmp_path / "ours")
    with pytest.raises(InputError, match=r"tokenizer\.json: found none"):
        LanguageModel.load(tmp_path / "ours")
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    with pytest.raises(InputError, match="chat_template"):
        model.chat([{"role": "user", "content": "w3"}])


def test_the_example_says_why_it_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object) -> Path:
        raise OSError("no network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(language_model, "download", no_network)
    with pytest.raises(NotAvailable, match="no network"):
        language_model.example_checkpoint()


def test_example_needs_the_gguf_package_before_it_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    monkeypatch.setattr(language_model, "download", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(InputError, match=r"no `gguf` package here.*tumorchain-jax\[chat\]"):
        language_model.example_checkpoint()
    assert list(tmp_path.rglob("*")) == []


def test_model_text_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb\nc"
