"""Published checkpoints in and out, against transformers: the same bytes, the same numbers."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, unroll
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


def llama(heads: int, kv_heads: int, tied: bool) -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **SIZES,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=tied,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 1e5},
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
    "vl-6-2-tied": partial(qwen2_5_vl, 6, 2, True),
    "vl-28-4-untied": partial(qwen2_5_vl, 28, 4, False),
}
ALL = pytest.mark.parametrize("name", MODELS)
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


@ALL
def test_hidden_states_of_every_layer_and_logits_are_theirs(
    name: str, tmp_path: Path, randomised: Randomised, torch_outputs: Outputs
) -> None:
    model = randomised(MODELS[name]())
    import_folder(saved(model, tmp_path / "theirs"), tmp_path / "ours")
    tokens = random_tokens(2, 33)
    hidden, layers, logits = torch_outputs(model, tokens)
    got = run(tmp_path / "ours", tokens)
    assert_close(got[0], hidden, TOLERANCE_HIDDEN)
    for ours, theirs in zip(got[1], layers, strict=True):
        assert_close(ours, theirs, TOLERANCE_HIDDEN)
    assert np.abs(np.asarray(got[2]) - logits).max() <= TOLERANCE_LOGITS


@ALL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_there_and_back_every_byte_is_the_same(
    name: str, dtype: str, tmp_path: Path, randomised: Randomised
) -> None:
    model = randomised(MODELS[name]())
    theirs = saved(model, tmp_path / "theirs", dtype)
    import_folder(theirs, tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    assert_same_bytes(tmp_path / "back", theirs)
    for folder in ("ours", "back"):
        verdict = verify(theirs, tmp_path / folder)
        assert verdict.same
        assert len(verdict.equal) == len(tensors(theirs))


@ALL
def test_transformers_opens_what_is_exported(
    name: str, tmp_path: Path, randomised: Randomised, torch_outputs: Outputs
) -> None:
    model = randomised(MODELS[name]())
    import_folder(saved(model, tmp_path / "theirs"), tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    again, info = type(model).from_pretrained(
        tmp_path / "back", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model.set_attn_implementation("eager")
    tokens = random_tokens(2, 9)
    np.testing.assert_array_equal(
        torch_outputs(again.eval(), tokens)[2], torch_outputs(model, tokens)[2]
    )


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


@pytest.mark.parametrize("name", ["qwen2-16-2-tied", "llama-6-3-untied", "vl-28-4-untied"])
def test_greedy_text_of_unequal_prompts_is_theirs(
    name: str, tmp_path: Path, randomised: Randomised
) -> None:
    """20 prompts of 3 to 22 tokens in one batch, 64 new tokens each."""
    model = randomised(MODELS[name](), 2.8)
    import_folder(saved(model, tmp_path / "theirs"), tmp_path / "ours")
    imported = Imported(tmp_path / "ours")
    decoder = Decoder(decoder_from_dict(imported.config["decoder"]), unrolled=True)
    params = unroll(imported.restore()["decoder"])
    longest, count = 22, 64
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


def test_a_decoder_without_biases_has_none() -> None:
    config = Qwen2Config(
        **{**SIZES, "num_attention_heads": 6, "num_key_value_heads": 2}, tie_word_embeddings=True
    )
    for biased in (True, False):
        decoder = Decoder(replace(config, attention_bias=biased))
        init = jax.eval_shape(
            lambda x, d=decoder: d.init(jax.random.key(0), x, method=whole), jnp.zeros((1, 2), int)
        )
        assert ("bias" in init["params"]["layers"]["self_attn"]["q_proj"]) is biased
