"""LoRA adapters in and out, against PEFT: the same bytes, the same numbers, merged or not."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, unroll
from tumorchain_jax.models.layers.linear import LoRA

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

# Largest difference of a logit, in float32.
TOLERANCE = 1e-4
VOCABULARY = 71
WRAPPED = {
    "two-projections": {"target_modules": ["q_proj", "v_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "a-regex": {"target_modules": r".*\.layers\.\d+\.(self_attn\.o_proj|mlp\.up_proj)"},
    "the-head-too": {"target_modules": ["down_proj", "lm_head"]},
    "one-layer-of-one": {"target_modules": ["layers.1.self_attn.q_proj", "gate_proj"]},
    "some-layers": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [0, 2]},
    "but-for-one": {"target_modules": "all-linear", "exclude_modules": ["k_proj"]},
    "patterns": {
        "target_modules": ["q_proj", "k_proj", "down_proj"],
        "rank_pattern": {"q_proj": 2, "mlp.down_proj": 6},
        "alpha_pattern": {"k_proj": 5},
    },
    "rslora": {"target_modules": ["q_proj", "up_proj"], "use_rslora": True},
    "modules-to-save": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "norm"]},
}
ALL = pytest.mark.parametrize("name", WRAPPED)
Randomised = Callable[..., Any]
pytestmark = [
    # PEFT itself calls what transformers has given another name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
]


def random_base(randomised: Randomised) -> Any:
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    return randomised(transformers.Qwen2ForCausalLM(config))


def wrapped(base: Any, options: dict[str, Any]) -> Any:
    """The base with a random adapter."""
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=12, **options))
    for name, parameter in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, float("norm" in name), 0.2)
    return model.eval()


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def run(decoder: Decoder, params: Any, tokens: np.ndarray) -> Any:
    def whole(decoder: Decoder, tokens: Any) -> Any:
        return decoder.logits(decoder(decoder.embed(tokens))[0])

    return jax.jit(partial(decoder.apply, method=whole))({"params": params}, tokens)


@pytest.fixture
def prepared(name: str, tmp_path: Path, randomised: Randomised) -> tuple[Any, np.ndarray]:
    """Base and adapter, saved and imported; the wrapped model and some tokens."""
    base = random_base(randomised)
    base.save_pretrained(tmp_path / "base")
    model = wrapped(base, WRAPPED[name])
    model.save_pretrained(tmp_path / "adapter")
    import_folder(tmp_path / "base", tmp_path / "our-base")
    import_folder(tmp_path / "adapter", tmp_path / "ours", base=tmp_path / "our-base")
    return model, np.random.default_rng(2).integers(0, VOCABULARY, (2, 11))


@ALL
def test_logits_are_those_of_peft(
    name: str, prepared: tuple[Any, np.ndarray], tmp_path: Path
) -> None:
    model, tokens = prepared
    base, adapter = Imported(tmp_path / "our-base"), Imported(tmp_path / "ours")
    params = flatten(base.restore()["decoder"]) | flatten(adapter.restore()["decoder"])
    lora = LoRA.from_dict(adapter.config["lora"])
    config, expected = Qwen2Config(**adapter.config["decoder"]), logits_of(model, tokens)
    got = run(Decoder(config, lora), unflatten(params), tokens)
    assert np.abs(got - expected).max() <= TOLERANCE
    unrolled = run(Decoder(config, lora, unrolled=True), unroll(unflatten(params)), tokens)
    assert np.abs(unrolled - expected).max() <= TOLERANCE
    with model.disable_adapter():
        assert np.abs(logits_of(model, tokens) - expected).max() > 0.1, "it does something"


@ALL
def test_an_adapter_comes_back_byte_by_byte(
    name: str, prepared: tuple[Any, np.ndarray], tmp_path: Path, randomised: Randomised
) -> None:
    model, tokens = prepared
    export_folder(tmp_path / "ours", tmp_path / "back")
    theirs = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    back = load_file(tmp_path / "back" / "adapter_model.safetensors")
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], value) for key, value in theirs.items())
    assert verify(tmp_path / "adapter", tmp_path / "ours").same
    again = peft.PeftModel.from_pretrained(random_base(randomised), tmp_path / "back").eval()
    np.testing.assert_array_equal(logits_of(again, tokens), logits_of(model, tokens))


@ALL
def test_merged_it_is_what_peft_merges(
    name: str, prepared: tuple[Any, np.ndarray], tmp_path: Path
) -> None:
    model, tokens = prepared
    export_folder(tmp_path / "our-base", tmp_path / "merged", adapter=tmp_path / "ours")
    merged, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = model.merge_and_unload().state_dict()
    for key, value in merged.state_dict().items():
        assert (value - expected[key]).abs().max() <= 1e-6, key
    assert np.abs(logits_of(merged.eval(), tokens) - logits_of(model, tokens)).max() <= TOLERANCE


def test_names_of_newer_transformers_are_read_and_written_back(
    tmp_path: Path, randomised: Randomised
) -> None:
    base = random_base(randomised)
    base.save_pretrained(tmp_path / "base")
    wrapped(base, WRAPPED["two-projections"]).save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    newer = {
        key.replace(".model.layers", ".model.language_model.layers"): value
        for key, value in load_file(path).items()
    }
    save_file(newer, path, metadata={"format": "pt"})
    import_folder(tmp_path / "adapter", tmp_path / "ours", base=tmp_path / "base")
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert load_file(tmp_path / "back" / "adapter_model.safetensors").keys() == newer.keys()
    config = json.loads((tmp_path / "back" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"
