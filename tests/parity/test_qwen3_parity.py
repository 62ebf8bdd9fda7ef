"""Qwen3 in and out, against transformers and PEFT: the same bytes, the same numbers and tokens."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.qwen2.model import Decoder, unroll
from tumorchain_jax.models.language.qwen3.convert import read_config, transformers_config
from tumorchain_jax.models.language.qwen3.model import QWEN3_4B, Qwen3Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.reasoning.text import continue_text

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

# In float32: largest difference of a hidden state over its largest value; of a logit.
TOLERANCE_HIDDEN = 1e-5
TOLERANCE_LOGITS = 1e-4
VOCABULARY = 71
Randomised = Callable[..., Any]
Outputs = Callable[[Any, np.ndarray], tuple[Any, Any, Any]]
ADAPTERS = {
    "two-projections": {"target_modules": ["q_proj", "down_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "norms-saved-whole": {"target_modules": ["v_proj"], "modules_to_save": ["q_norm", "k_norm"]},
}
pytestmark = [
    # PEFT itself calls what transformers has given another name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
]


def random_qwen3(randomised: Randomised, tied: bool, gain: float = 1.4) -> Any:
    """A head size that is not hidden size / heads."""
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        attn_implementation="eager",
    )
    return randomised(transformers.Qwen3ForCausalLM(config), gain)


def convert(*arguments: object) -> None:
    assert main(["convert", *map(str, arguments)]) == 0


def whole(decoder: Decoder, tokens: Any) -> tuple[Any, Any, Any]:
    hidden, layers = decoder(decoder.embed(tokens))
    return hidden, layers, decoder.logits(hidden)


def run(decoder: Decoder, params: Any, tokens: np.ndarray) -> tuple[Any, Any, Any]:
    return jax.jit(partial(decoder.apply, method=whole))({"params": params}, tokens)


def random_tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, VOCABULARY, shape)


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def assert_same_files(folder: Path, other: Path, stem: str = "model") -> None:
    left, right = (load_file(path / f"{stem}.safetensors") for path in (folder, other))
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert value.dtype == right[key].dtype, key
        assert torch.equal(value.view(torch.uint8), right[key].view(torch.uint8)), key


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_qwen3_hidden_states_logits_and_bytes_are_those_of_transformers(
    tied: bool, tmp_path: Path, randomised: Randomised, torch_outputs: Outputs
) -> None:
    model = random_qwen3(randomised, tied)
    model.save_pretrained(tmp_path / "theirs")
    convert("import", "-i", tmp_path / "theirs", "-o", tmp_path / "ours")
    imported = Imported(tmp_path / "ours")
    config = decoder_from_dict(imported.config["decoder"])
    assert isinstance(config, Qwen3Config)
    tokens = random_tokens(2, 33)
    got = run(Decoder(config), imported.restore()["decoder"], tokens)
    hidden, layers, logits = torch_outputs(model, tokens)
    for ours, theirs in zip((got[0], *got[1]), (hidden, *layers), strict=True):
        assert np.abs(np.asarray(ours) - theirs).max() <= TOLERANCE_HIDDEN * np.abs(theirs).max()
    assert np.abs(np.asarray(got[2]) - logits).max() <= TOLERANCE_LOGITS

    convert("export", "-i", tmp_path / "ours", "-o", tmp_path / "back")
    for other in ("ours", "back"):
        convert("verify", "-i", tmp_path / "theirs", "-o", tmp_path / other)
    assert_same_files(tmp_path / "back", tmp_path / "theirs")
    for path in (tmp_path / "theirs").glob("*.json"):
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()


def test_qwen3_in_bfloat16_comes_back_byte_by_byte(tmp_path: Path, randomised: Randomised) -> None:
    random_qwen3(randomised, True).bfloat16().save_pretrained(tmp_path / "theirs")
    convert("import", "-i", tmp_path / "theirs", "-o", tmp_path / "ours")
    convert("export", "-i", tmp_path / "ours", "-o", tmp_path / "back")
    assert_same_files(tmp_path / "back", tmp_path / "theirs")


def test_qwen3_greedy_tokens_are_those_of_transformers(
    tmp_path: Path, randomised: Randomised
) -> None:
    """Prompts of 3 to 10 tokens in one batch, 48 new tokens each."""
    model = random_qwen3(randomised, True, gain=2.8)
    model.save_pretrained(tmp_path / "theirs")
    convert("import", "-i", tmp_path / "theirs", "-o", tmp_path / "ours")
    imported, rows, longest, count = Imported(tmp_path / "ours"), 8, 10, 48
    decoder = Decoder(decoder_from_dict(imported.config["decoder"]), unrolled=True)
    tokens, valid = random_tokens(rows, longest), np.zeros((rows, longest), bool)
    for row in range(rows):
        valid[row, longest - 3 - row :] = True
    written, _ = continue_text(
        decoder,
        unroll(imported.restore()["decoder"]),
        jnp.asarray(tokens),
        jnp.asarray(valid),
        jnp.asarray([VOCABULARY]),  # nothing ends an answer
        jnp.broadcast_to(jax.random.key(0), (rows,)),
        limit=count,
    )
    model.generation_config = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=count, pad_token_id=0, eos_token_id=None
    )
    ids, mask = torch.from_numpy(tokens * valid), torch.from_numpy(valid.astype(np.int64))
    with torch.no_grad():
        expected = model.generate(ids, attention_mask=mask)[:, longest:]
    assert len({tuple(row) for row in expected.tolist()}) > 4, "prompts make a difference"
    np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("name", ADAPTERS)
def test_qwen3_adapter_is_read_written_and_merged_as_by_peft(
    name: str, tmp_path: Path, randomised: Randomised
) -> None:
    base = random_qwen3(randomised, False)
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=12, **ADAPTERS[name]))
    for key, parameter in model.named_parameters():
        if "lora_" in key or "modules_to_save" in key:
            torch.nn.init.normal_(parameter, float("norm" in key), 0.2)
    model.eval().save_pretrained(tmp_path / "adapter")
    convert("import", "-i", tmp_path / "base", "-o", tmp_path / "our-base")
    own = ("--base", tmp_path / "our-base")
    convert("import", "-i", tmp_path / "adapter", "-o", tmp_path / "ours", *own)

    ours, adapter = Imported(tmp_path / "our-base"), Imported(tmp_path / "ours")
    params = flatten(ours.restore()["decoder"]) | flatten(adapter.restore()["decoder"])
    decoder = Decoder(
        decoder_from_dict(adapter.config["decoder"]), LoRA.from_dict(adapter.config["lora"])
    )
    tokens = random_tokens(2, 11)
    expected = logits_of(model, tokens)
    got = run(decoder, unflatten(params), tokens)[2]
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_LOGITS
    with model.disable_adapter():
        assert np.abs(logits_of(model, tokens) - expected).max() > 0.1, "it does something"

    convert("export", "-i", tmp_path / "ours", "-o", tmp_path / "back")
    assert_same_files(tmp_path / "back", tmp_path / "adapter", "adapter_model")
    merging = ("--adapter", tmp_path / "ours")
    convert("export", "-i", tmp_path / "our-base", "-o", tmp_path / "merged", *merging)
    merged, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    by_peft = model.merge_and_unload().state_dict()
    for key, value in merged.state_dict().items():
        assert (value - by_peft[key]).abs().max() <= 1e-6, key


def test_qwen3_config_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    """The sizes of Qwen3-4B as ours writes them, opened by transformers, and read back."""
    (tmp_path / "config.json").write_text(json.dumps(transformers_config(QWEN3_4B)))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(theirs) is transformers.Qwen3Config
    assert (theirs.head_dim, theirs.rope_parameters["rope_theta"]) == (128, 1e6)
    shutil.rmtree(tmp_path)
    theirs.save_pretrained(tmp_path)
    again = json.loads((tmp_path / "config.json").read_text())
    assert read_config(tmp_path / "config.json", again) == QWEN3_4B


@pytest.mark.parametrize(
    ("field", "value"),
    [("head_dim", None), ("attention_bias", True), ("use_sliding_window", True)],
)
def test_qwen3_config_that_ours_cannot_do_is_refused(field: str, value: object) -> None:
    fields = {**transformers_config(QWEN3_4B), field: value}
    with pytest.raises(InputError) as error:
        read_config(Path("config.json"), fields)
    assert error.value.field == field
