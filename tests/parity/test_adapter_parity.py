"""LoRA adapters in and out, against PEFT: the same bytes, the same numbers, merged or not."""

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.qwen2.model import Decoder, unroll
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
    "ranks-of-layers": {
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {"layers.1.self_attn.q_proj": 6, "layers.2.mlp.up_proj": 2},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 18, "layers.2.mlp.up_proj": 6},
    },
    "gaussian": {"target_modules": ["q_proj"], "init_lora_weights": "gaussian"},
    "orthogonal": {"target_modules": ["q_proj"], "init_lora_weights": "orthogonal"},
    "eva": {"target_modules": ["q_proj"], "init_lora_weights": "eva"},
    "tied": {"target_modules": "all-linear"},
    "tied-embedding-saved": {
        "target_modules": ["q_proj"],
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
    "tied-embedding-added": {"target_modules": ["q_proj"]},
    "untied-embeddings-added": {"target_modules": ["q_proj"]},
}
Randomised = Callable[..., Any]
pytestmark = [
    # PEFT itself calls what transformers has given another name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
    pytest.mark.filterwarnings("ignore:`init_lora_weights` is 'eva':UserWarning"),
    pytest.mark.filterwarnings("ignore:lora with eva initialization:UserWarning"),
]


def random_base(randomised: Randomised, tied: bool = False) -> Any:
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=tied,
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


class Prepared(NamedTuple):
    """A wrapped model, tokens, and the folder with `base` and `adapter`, published and imported."""

    model: Any
    base: Any
    tokens: np.ndarray
    folder: Path


@pytest.fixture(scope="module", params=WRAPPED)
def prepared(
    request: pytest.FixtureRequest, randomised: Randomised, tmp_path_factory: Any
) -> Prepared:
    folder, name = tmp_path_factory.mktemp("adapter"), request.param
    base = random_base(randomised, name.startswith("tied"))
    base.save_pretrained(folder / "base")
    before = copy.deepcopy(base)
    model = wrapped(base, WRAPPED[name])
    model.save_pretrained(folder / "adapter", save_embedding_layers="added" in name or "auto")
    import_folder(folder / "base", folder / "our-base")
    import_folder(folder / "adapter", folder / "ours", base=folder / "our-base")
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (2, 11))
    return Prepared(model, before, tokens, folder)


# The others' merged weights are compared, which is as strict and needs no compiling.
COMPUTED = (
    *("the-head-too", "rslora", "modules-to-save"),
    *("ranks-of-layers", "tied-embedding-saved"),
)


@pytest.mark.parametrize("prepared", COMPUTED, indirect=True)
def test_adapter_logits_are_those_of_peft(prepared: Prepared) -> None:
    model, folder, tokens = prepared.model, prepared.folder, prepared.tokens
    base, adapter = Imported(folder / "our-base"), Imported(folder / "ours")
    params = flatten(base.restore()["decoder"]) | flatten(adapter.restore()["decoder"])
    lora = LoRA.from_dict(adapter.config["lora"])
    config, expected = decoder_from_dict(adapter.config["decoder"]), logits_of(model, tokens)
    got = run(Decoder(config, lora), unflatten(params), tokens)
    assert np.abs(got - expected).max() <= TOLERANCE
    if lora.ranks:
        unrolled = run(Decoder(config, lora, unrolled=True), unroll(unflatten(params)), tokens)
        assert np.abs(unrolled - expected).max() <= TOLERANCE
    with model.disable_adapter():
        assert np.abs(logits_of(model, tokens) - expected).max() > 0.1, "it does something"


def test_adapter_comes_back_byte_by_byte(prepared: Prepared, tmp_path: Path) -> None:
    folder = prepared.folder
    export_folder(folder / "ours", tmp_path / "back")
    theirs = load_file(folder / "adapter" / "adapter_model.safetensors")
    back = load_file(tmp_path / "back" / "adapter_model.safetensors")
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], value) for key, value in theirs.items())
    assert verify(folder / "adapter", folder / "ours").same
    again = peft.PeftModel.from_pretrained(copy.deepcopy(prepared.base), tmp_path / "back").eval()
    tokens = prepared.tokens
    np.testing.assert_array_equal(logits_of(again, tokens), logits_of(prepared.model, tokens))


def test_adapter_merged_is_what_peft_merges(prepared: Prepared, tmp_path: Path) -> None:
    folder, tokens = prepared.folder, prepared.tokens
    export_folder(folder / "our-base", tmp_path / "merged", adapter=folder / "ours")
    merged, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = logits_of(prepared.model, tokens)
    assert np.abs(logits_of(merged.eval(), tokens) - expected).max() <= TOLERANCE
    weights = copy.deepcopy(prepared.model).merge_and_unload().state_dict()
    for key, value in merged.state_dict().items():
        assert (value - weights[key]).abs().max() <= 1e-6, key


# ------------------------------------------------------- what PEFT does and a stack cannot


def refusal(base: Any, options: dict[str, Any], folder: Path) -> str:
    base.save_pretrained(folder / "base")
    wrapped(base, options).save_pretrained(folder / "adapter")
    with pytest.raises(InputError) as caught:
        import_folder(folder / "adapter", folder / "ours", base=folder / "base")
    assert len(str(caught.value)) - len(str(folder)) <= 300
    return str(caught.value)


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_2", "olora"])
def test_adapter_that_changes_its_base_is_refused(
    init: str, randomised: Randomised, tmp_path: Path
) -> None:
    options = {"target_modules": ["q_proj"], "init_lora_weights": init}
    said = refusal(random_base(randomised), options, tmp_path)
    assert f"init_lora_weights: found '{init}', which changes the base" in said
    assert "merge with PEFT first" in said


@pytest.mark.filterwarnings("ignore:PiSSA changes the base weights:UserWarning")
def test_adapter_that_peft_converted_is_read(randomised: Randomised, tmp_path: Path) -> None:
    base = random_base(randomised)
    base.save_pretrained(tmp_path / "base")
    options = {"target_modules": ["q_proj"], "init_lora_weights": "pissa"}
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=12, **options))
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(tmp_path / "initial")
    model.peft_config["default"].init_lora_weights = "pissa"
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0, 0.2)
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (2, 11))
    expected = logits_of(model.eval(), tokens)
    model.save_pretrained(
        tmp_path / "adapter", path_initial_model_for_weight_conversion=tmp_path / "initial"
    )
    import_folder(tmp_path / "base", tmp_path / "our-base")
    import_folder(tmp_path / "adapter", tmp_path / "ours", base=tmp_path / "base")
    export_folder(tmp_path / "our-base", tmp_path / "merged", adapter=tmp_path / "ours")
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    assert np.abs(logits_of(merged, tokens) - expected).max() <= TOLERANCE


TIED = {
    "embedding alone": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "head alone": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "different ends": {
        "target_modules": ["q_proj"],
        "modules_to_save": ["embed_tokens", "lm_head"],
    },
    "adapted head": {"target_modules": ["q_proj", "lm_head"]},
    "adapted embedding": {"target_modules": ["q_proj", "embed_tokens"]},
}


@pytest.mark.parametrize("name", TIED)
def test_adapter_of_one_end_of_a_tied_embedding_is_refused(
    name: str, randomised: Randomised, tmp_path: Path
) -> None:
    said = refusal(random_base(randomised, tied=True), TIED[name], tmp_path)
    assert "merge with PEFT first" in said
    assert "tie_word_embeddings" in said


def test_adapter_of_an_untied_embedding_is_refused(randomised: Randomised, tmp_path: Path) -> None:
    said = refusal(random_base(randomised), TIED["adapted embedding"], tmp_path)
    assert "found an adapter of the embedding" in said
    assert said.endswith("merge with PEFT first")


def test_adapter_with_another_head_for_its_base_is_refused(
    randomised: Randomised, tmp_path: Path
) -> None:
    """PEFT takes the head that the adapter brings along."""
    base = random_base(randomised)
    base.save_pretrained(tmp_path / "base")
    wrapped(base, {"target_modules": ["lm_head"]}).save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    theirs = load_file(path)
    theirs["base_model.model.lm_head.base_layer.weight"] += 1
    save_file(theirs, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lm_head\.base_layer\.weight: found other numbers"):
        import_folder(tmp_path / "adapter", tmp_path / "ours", base=tmp_path / "base")


def test_merged_head_of_a_tied_base_is_its_new_embedding(
    randomised: Randomised, tmp_path: Path
) -> None:
    """Where the base's files hold the tied head too."""
    base = random_base(randomised, tied=True)
    base.save_pretrained(tmp_path / "base")
    path = tmp_path / "base" / "model.safetensors"
    theirs = load_file(path)
    theirs["lm_head.weight"] = theirs["model.embed_tokens.weight"].clone()
    save_file(theirs, path, metadata={"format": "pt"})
    model = wrapped(base, WRAPPED["tied-embedding-saved"])
    model.save_pretrained(tmp_path / "adapter")
    import_folder(tmp_path / "base", tmp_path / "our-base")
    import_folder(tmp_path / "adapter", tmp_path / "ours", base=tmp_path / "base")
    export_folder(tmp_path / "our-base", tmp_path / "merged", adapter=tmp_path / "ours")
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    assert torch.equal(merged["lm_head.weight"], merged["model.embed_tokens.weight"])
    assert not torch.equal(merged["lm_head.weight"], theirs["lm_head.weight"])


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
