"""Published checkpoints in and out, against transformers: the same bytes, the same numbers."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.qwen2.model import Decoder, unroll
from tumorchain_jax.reasoning.text import continue_text

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# In float32: largest difference of a hidden state over its largest value; of a logit.
TOLERANCE_HIDDEN = 1e-5
TOLERANCE_LOGITS = 1e-4
VOCABULARY = 71

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "head_dim": 8,
}


def qwen2(heads: int, kv_heads: int, tied: bool) -> Any:
    return transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            **SIZES,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=tied,
            attn_implementation="eager",
        )
    )


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e3,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
PLAIN = {"rope_type": "default", "rope_theta": 1e5}


def llama(heads: int, kv_heads: int, tied: bool, rope: dict = PLAIN) -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **SIZES,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=tied,
            rms_norm_eps=1e-5,
            rope_parameters=rope,
            attn_implementation="eager",
        )
    )


def mistral(heads: int, kv_heads: int, tied: bool) -> Any:
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(
            **SIZES,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=tied,
            sliding_window=None,
            rope_parameters=PLAIN,
            attn_implementation="eager",
        )
    )


def qwen2_5_vl(heads: int, kv_heads: int, tied: bool) -> Any:
    text = {
        **SIZES,
        "hidden_size": heads * SIZES["head_dim"],  # its attention allows no other
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [1, 1, 2],
        },
    }
    tower = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    tower |= {"out_hidden_size": text["hidden_size"], "fullatt_block_indexes": [0]}
    config = transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=tower, tie_word_embeddings=tied
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


MODELS = {
    "qwen2-16-2-tied": partial(qwen2, 16, 2, True),
    "qwen2-28-4-untied": partial(qwen2, 28, 4, False),
    "qwen2-5-1-untied": partial(qwen2, 5, 1, False),
    "llama-6-2-tied": partial(llama, 6, 2, True),
    "llama-6-3-untied": partial(llama, 6, 3, False),
    "llama-3.1-6-2-tied": partial(llama, 6, 2, True, LLAMA3),
    "mistral-5-1-untied": partial(mistral, 5, 1, False),
    "vl-6-2-tied": partial(qwen2_5_vl, 6, 2, True),
    "vl-28-4-untied": partial(qwen2_5_vl, 28, 4, False),
}
Randomised = Callable[..., Any]
Outputs = Callable[[Any, np.ndarray], tuple[Any, Any, Any]]


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def saved(model: Any, folder: Path, dtype: str = "float32") -> Path:
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def tensors(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def assert_same_bytes(folder: Path, other: Path) -> None:
    left, right = tensors(folder), tensors(other)
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert value.dtype == right[key].dtype, key
        assert value.shape == right[key].shape, key
        assert torch.equal(value.view(torch.uint8), right[key].view(torch.uint8)), key


def whole(decoder: Decoder, tokens: Any) -> tuple[Any, Any, Any]:
    hidden, layers = decoder(decoder.embed(tokens))
    return hidden, layers, decoder.logits(hidden)


def run(folder: Path, tokens: np.ndarray) -> tuple[Any, Any, Any]:
    """Final hidden states, the output of every layer, logits of an imported folder."""
    imported = Imported(folder)
    decoder = Decoder(decoder_from_dict(imported.config["decoder"]))
    params = {"params": imported.restore()["decoder"]}
    return jax.jit(partial(decoder.apply, method=whole))(params, tokens)


def random_tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, VOCABULARY, shape)


def assert_close(got: Any, expected: np.ndarray, relative: float) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= relative * np.abs(expected).max()


class Published(NamedTuple):
    """A random model, and the folder with it saved (`theirs`), imported and exported again."""

    model: Any
    folder: Path


@pytest.fixture(scope="module", params=MODELS)
def published(
    request: pytest.FixtureRequest, randomised: Randomised, tmp_path_factory: Any
) -> Published:
    model, folder = randomised(MODELS[request.param]()), tmp_path_factory.mktemp("published")
    import_folder(saved(model, folder / "theirs"), folder / "ours")
    export_folder(folder / "ours", folder / "back")
    return Published(model, folder)


def test_hidden_states_of_every_layer_and_logits_are_theirs(
    published: Published, torch_outputs: Outputs
) -> None:
    tokens = random_tokens(2, 33)
    hidden, layers, logits = torch_outputs(published.model, tokens)
    got = run(published.folder / "ours", tokens)
    assert_close(got[0], hidden, TOLERANCE_HIDDEN)
    for ours, theirs in zip(got[1], layers, strict=True):
        assert_close(ours, theirs, TOLERANCE_HIDDEN)
    assert np.abs(np.asarray(got[2]) - logits).max() <= TOLERANCE_LOGITS


def test_round_trip_changes_no_byte(published: Published) -> None:
    assert_round_trip(published.folder)


@pytest.mark.parametrize("name", ["qwen2-16-2-tied", "llama-6-3-untied", "vl-28-4-untied"])
def test_round_trip_in_bfloat16_changes_no_byte(
    name: str, tmp_path: Path, randomised: Randomised
) -> None:
    theirs = saved(randomised(MODELS[name]()), tmp_path / "theirs", "bfloat16")
    import_folder(theirs, tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert_round_trip(tmp_path)


def assert_round_trip(folder: Path) -> None:
    theirs = folder / "theirs"
    assert_same_bytes(folder / "back", theirs)
    for name in ("ours", "back"):
        verdict = verify(theirs, folder / name)
        assert verdict.same
        assert len(verdict.equal) == len(tensors(theirs))


def test_exported_model_opens_in_transformers(published: Published, torch_outputs: Outputs) -> None:
    model = published.model
    again, info = type(model).from_pretrained(
        published.folder / "back", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model.set_attn_implementation("eager")
    tokens = random_tokens(2, 9)
    np.testing.assert_array_equal(
        torch_outputs(again.eval(), tokens)[2], torch_outputs(model, tokens)[2]
    )


# ------------------------------------------------------- other spellings of a configuration

OLD_LLAMA = ("rope_parameters", "tie_word_embeddings", "num_key_value_heads", "hidden_act")
SPELLINGS: dict[str, tuple[Any, Callable[[dict], Any]]] = {
    "llama, as it was first": (
        partial(llama, 6, 6, False, {"rope_type": "default", "rope_theta": 1e4}),
        lambda fields: [fields.pop(name) for name in OLD_LLAMA],
    ),
    "swish": (partial(llama, 6, 2, True), lambda fields: fields.update(hidden_act="swish")),
    "llama 3.1, older layout": (
        partial(llama, 6, 2, True, LLAMA3),
        lambda fields: fields.update(
            rope_scaling={
                k: v for k, v in fields.pop("rope_parameters").items() if "theta" not in k
            },
            rope_theta=LLAMA3["rope_theta"],
        ),
    ),
    "no layer slides": (
        partial(qwen2, 6, 2, True),
        lambda fields: (
            fields.update(use_sliding_window=True, sliding_window=4, max_window_layers=3),
            fields.pop("layer_types"),
        ),
    ),
    "a window as long as the context": (
        partial(mistral, 6, 2, True),
        lambda fields: fields.update(sliding_window=64, max_position_embeddings=64),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_a_configuration_mean_what_transformers_reads(
    name: str, tmp_path: Path, randomised: Randomised, torch_outputs: Outputs
) -> None:
    build, change = SPELLINGS[name]
    theirs = saved(randomised(build()), tmp_path / "theirs")
    fields = json.loads((theirs / "config.json").read_text())
    change(fields)
    (theirs / "config.json").write_text(json.dumps(fields))
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs, attn_implementation="eager")
    import_folder(theirs, tmp_path / "ours")
    tokens = random_tokens(2, 33)
    got, expected = run(tmp_path / "ours", tokens)[2], torch_outputs(model.eval(), tokens)[2]
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE_LOGITS


def test_frequencies_of_older_transformers_are_kept_and_ignored(
    tmp_path: Path, randomised: Randomised
) -> None:
    theirs = saved(randomised(llama(6, 2, False)), tmp_path / "theirs")
    buffers = {
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.arange(4.0) for i in range(3)
    }
    path = theirs / "model.safetensors"
    save_file(tensors(theirs) | buffers, path, metadata={"format": "pt"})
    import_folder(theirs, tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert_same_bytes(tmp_path / "back", theirs)


def test_names_of_newer_transformers_are_read_and_written_back(
    tmp_path: Path, randomised: Randomised
) -> None:
    theirs = saved(randomised(qwen2_5_vl(6, 2, False)), tmp_path / "theirs")
    newer = {}
    for key, value in tensors(theirs).items():
        part = "model.visual." if key.startswith("visual.") else "model.language_model."
        newer[key if key == "lm_head.weight" else part + key.split(".", 1)[1]] = value
    (tmp_path / "newer").mkdir()
    save_file(newer, tmp_path / "newer" / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(theirs / "config.json", tmp_path / "newer")
    import_folder(theirs, tmp_path / "ours")
    import_folder(tmp_path / "newer", tmp_path / "ours-newer")
    export_folder(tmp_path / "ours-newer", tmp_path / "back")
    assert_same_bytes(tmp_path / "back", tmp_path / "newer")
    assert {key.split(".")[0] for key in tensors(tmp_path / "back")} == {"model", "lm_head"}
    tokens = random_tokens(1, 9)
    for one, other in zip(
        run(tmp_path / "ours", tokens), run(tmp_path / "ours-newer", tokens), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_old_layout_of_the_configuration_is_read(
    tmp_path: Path, randomised: Randomised
) -> None:
    """Qwen2.5-VL's fields were once at the top, and so was `rope_theta`."""
    theirs = saved(randomised(qwen2_5_vl(6, 2, True)), tmp_path / "theirs")
    import_folder(theirs, tmp_path / "ours")
    path = theirs / "config.json"
    fields = json.loads(path.read_text())
    text = fields.pop("text_config")
    rope = text.pop("rope_parameters")
    old = {**text, **fields, "model_type": "qwen2_5_vl", "rope_theta": rope["rope_theta"]}
    old["rope_scaling"] = {"type": "mrope", "mrope_section": [1, 1, 2]}
    path.write_text(json.dumps(old))
    import_folder(theirs, tmp_path / "ours-old")
    assert Imported(tmp_path / "ours-old").config == Imported(tmp_path / "ours").config


def test_sharded_files_go_back_to_shards(tmp_path: Path, randomised: Randomised) -> None:
    model = randomised(qwen2(28, 4, False))
    model.save_pretrained(tmp_path / "theirs", max_shard_size="40KB")
    assert len([*(tmp_path / "theirs").glob("*.safetensors")]) > 2
    import_folder(tmp_path / "theirs", tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert_same_bytes(tmp_path / "back", tmp_path / "theirs")
    _, info = type(model).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values())


def test_a_chosen_dtype_is_rounded_once(tmp_path: Path, randomised: Randomised) -> None:
    theirs = saved(randomised(qwen2(6, 2, True)), tmp_path / "theirs")
    import_folder(theirs, tmp_path / "ours", "bfloat16")
    assert verify(theirs, tmp_path / "ours").same
    export_folder(tmp_path / "ours", tmp_path / "back", "bfloat16")
    rounded = {key: value.bfloat16() for key, value in tensors(theirs).items()}
    back = tensors(tmp_path / "back")
    assert all(torch.equal(back[key], value) for key, value in rounded.items())
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert model.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["qwen2-16-2-tied", "llama-6-3-untied"])
def test_greedy_text_of_unequal_prompts_is_theirs(
    name: str, tmp_path: Path, randomised: Randomised
) -> None:
    """20 prompts of 3 to 22 tokens in one batch, 24 new tokens each."""
    model = randomised(MODELS[name](), 2.8)
    import_folder(saved(model, tmp_path / "theirs"), tmp_path / "ours")
    imported = Imported(tmp_path / "ours")
    decoder = Decoder(decoder_from_dict(imported.config["decoder"]), unrolled=True)
    params = unroll(imported.restore()["decoder"])
    longest, count = 22, 24
    tokens, valid = random_tokens(20, longest), np.zeros((20, longest), bool)
    for row in range(20):
        valid[row, longest - 3 - row :] = True
    written, lengths = continue_text(
        decoder,
        params,
        jnp.asarray(tokens),
        jnp.asarray(valid),
        jnp.asarray([VOCABULARY]),  # nothing ends an answer
        jnp.broadcast_to(jax.random.key(0), (20,)),
        limit=count,
    )
    assert lengths.tolist() == [count] * 20
    model.generation_config = transformers.GenerationConfig(
        do_sample=False, max_new_tokens=count, pad_token_id=0, eos_token_id=None
    )
    ids, mask = torch.from_numpy(tokens * valid), torch.from_numpy(valid.astype(np.int64))
    with torch.no_grad():
        expected = model.generate(ids, attention_mask=mask)[:, longest:]
    assert len({tuple(row) for row in expected.tolist()}) > 10, "prompts make a difference"
    np.testing.assert_array_equal(written, expected)
