"""Whatever is wrong, `tumorchain convert` says so in one line, exits with 2 and leaves nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tumorchain_jax.cli.main import main

Change = Callable[[dict, dict], Any]
Changed = Callable[[Change], Path]
Spoil = Callable[[Path], Any]
Refuse = Callable[..., None]
Words = tuple[str, ...]
NORM, HEAD, EMBEDDING = "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"
Q = "model.layers.1.self_attn.q_proj.weight"

# ---------------------------------------------------------------- models


def with_field(**values: Any) -> Change:
    return lambda fields, tensors: fields.update(values)


def without(field: str) -> Change:
    return lambda fields, tensors: fields.pop(field)


def with_number(value: float, dtype: Any, key: str = NORM) -> Change:
    """That number in the last place of a tensor."""

    def change(fields: dict, tensors: dict) -> None:
        tensors[key] = tensors[key].astype(dtype)
        tensors[key].reshape(-1)[-1] = value

    return change


def with_tensor(key: str, like: str, dtype: Any = None) -> Change:
    return lambda fields, tensors: tensors.update({key: tensors[like].astype(dtype)})


def as_it_is(fields: dict, tensors: dict) -> None:
    pass


LLAMA3 = {"rope_type": "llama3", "factor": 8.0}
YARN = {"rope_type": "yarn", "factor": 8.0}
LOW_OVER_HIGH = {
    **LLAMA3,
    "low_freq_factor": 4.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 16,
}
NAN, INFINITY = float("nan"), float("inf")
BAD_MODELS: dict[str, tuple[Change, Words]] = {
    "shape": (
        lambda f, t: t.update({HEAD: t[HEAD].T.copy()}),
        (HEAD, "(8, 10)", "expected (10, 8)"),
    ),
    "missing": (lambda f, t: t.pop(Q), (f"{Q}: found no such array, expected (8, 8)",)),
    "unexpected": (
        with_tensor("model.layers.2.x", NORM),
        ("model.layers.2.x: found (8,), expected no such array",),
    ),
    "twice": (
        with_tensor("model.language_model.norm.weight", NORM),
        (f"found it under two spellings of {NORM}", "remove one"),
    ),
    "integers": (with_tensor(NORM, NORM, np.int32), (NORM, "int32", "bfloat16")),
    "mixed layers": (with_tensor(Q, Q, np.float32), (Q, "float32", "bfloat16")),
    "NaN in float32": (with_number(NAN, np.float32), (NORM, "NaN")),
    "NaN in bfloat16": (with_number(NAN, ml_dtypes.bfloat16, Q), (Q, "NaN")),
    "infinity in float16": (with_number(-INFINITY, np.float16), (NORM, "infinity")),
    "unknown kind": (with_field(model_type="mamba"), ("config.json: model_type", "'mamba'")),
    "no kind": (without("model_type"), ("config.json: model_type: found none", "qwen2")),
    "another size": (
        with_field(intermediate_size=16),
        ("mlp.down_proj.weight: found (8, 12), expected (8, 16)",),
    ),
    "no rope_theta": (without("rope_theta"), ("config.json: rope_theta: found no such field",)),
    "no key heads": (without("num_key_value_heads"), ("num_key_value_heads: found no such",)),
    "tying as text": (
        with_field(tie_word_embeddings="true"),
        ("tie_word_embeddings: found 'true', expected true or false",),
    ),
    "no heads": (with_field(num_attention_heads=0), ("num_attention_heads: found 0",)),
    "heads": (
        with_field(num_attention_heads=3),
        ("num_key_value_heads", "num_attention_heads")[1:],
    ),
    "odd heads": (with_field(head_dim=3), ("head_dim: found 3, expected an even number",)),
    "negative theta": (with_field(rope_theta=-1.0), ("rope_theta: found -1.0",)),
    "endless theta": (with_field(rope_theta=INFINITY), ("rope_theta: found inf",)),
    "epsilon": (with_field(rms_norm_eps=NAN), ("rms_norm_eps: found nan",)),
    "tied for nothing": (
        with_field(tie_word_embeddings=True),
        (f"{HEAD}: found other numbers than {EMBEDDING}", "tie_word_embeddings"),
    ),
    "half a llama3 rope": (with_field(rope_scaling=LLAMA3), ("low_freq_factor: found no such",)),
    "mad llama3 rope": (with_field(rope_scaling=LOW_OVER_HIGH), ("high_freq_factor: found 1.0",)),
    "yarn": (with_field(rope_scaling=YARN), ("config.json: rope_scaling", "yarn")),
    "partial rope": (
        with_field(rope_scaling={"type": "default", "partial_rotary_factor": 0.5}),
        ("partial_rotary_factor: found 0.5",),
    ),
    "sliding": (with_field(use_sliding_window=True), ("config.json: use_sliding_window",)),
    "sliding from a layer on": (
        with_field(use_sliding_window=True, max_window_layers=1),
        ("config.json: use_sliding_window",),
    ),
    "a layer that slides": (
        with_field(layer_types=["full_attention", "sliding_attention"]),
        ("config.json: layer_types",),
    ),
    "mistral's window": (with_field(model_type="mistral"), ("config.json: sliding_window",)),
    "a long name": (with_field(model_type="x" * 5000), ("config.json: model_type",)),
}


@pytest.mark.parametrize(("change", "words"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_a_model_that_is_wrong_is_refused(
    change: Change, words: Words, model: Changed, refuse: Refuse
) -> None:
    refuse(words, "import", model(change))


INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"
BAD_FOLDERS: dict[str, tuple[Spoil, Words]] = {
    "missing file": (lambda f: (f / SECOND).unlink(), (SECOND, "no such file")),
    "truncated": (lambda f: os.truncate(f / SECOND, 1200), (SECOND, "1200 bytes")),
    "no index": (lambda f: (f / INDEX).unlink(), ("weights: found neither", INDEX)),
    "no config": (lambda f: (f / "config.json").unlink(), ("model_type: found none",)),
    "torn config": (lambda f: os.truncate(f / "config.json", 9), ("config.json: JSON",)),
    "no folder": (shutil.rmtree, ("input: found no such folder",)),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_folder_that_is_not_whole_is_refused(
    spoil: Spoil, words: Words, source: Path, tmp_path: Path, refuse: Refuse
) -> None:
    folder = shutil.copytree(source, tmp_path / "source")
    spoil(folder)
    refuse((str(folder), *words), "import", folder)


# ---------------------------------------------------------------- outputs


def test_a_disk_without_room_is_told_before_anything_is_written(
    source: Path, outputs: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    refuse((f"{outputs}: disk: found 1000 bytes free", "free disk space"), "import", source)


def test_an_output_that_is_there_is_left_as_it_was(
    source: Path, imported: Path, outputs: Path, refuse: Refuse
) -> None:
    (outputs / "dst").mkdir()
    (outputs / "dst" / "mine.txt").write_text("mine")
    for what, folder in (("import", source), ("export", imported)):
        refuse(("dst: output: found there already",), what, folder)
    assert (outputs / "dst" / "mine.txt").read_text() == "mine"


def test_an_output_needs_a_folder_to_be_put_in(
    source: Path, imported: Path, outputs: Path, refuse: Refuse
) -> None:
    for what, folder in (("import", source), ("export", imported)):
        refuse(("output: found no folder",), what, folder, "-o", outputs / "new" / "dst")


# ---------------------------------------------------------------- adapters

BAD_ADAPTERS: dict[str, tuple[Change, Words]] = {
    "DoRA": (with_field(use_dora=True), ("adapter_config.json: use_dora",)),
    "biases": (with_field(bias="all"), ("adapter_config.json: bias: found 'all'",)),
    "no LoRA": (with_field(peft_type="LOHA"), ("adapter_config.json: peft_type: found 'LOHA'",)),
    "PiSSA": (with_field(init_lora_weights="pissa"), ("init_lora_weights: found 'pissa'",)),
    "OLoRA": (with_field(init_lora_weights="olora"), ("init_lora_weights: found 'olora'",)),
    "CorDA": (with_field(init_lora_weights="corda"), ("init_lora_weights: found 'corda'",)),
    "LoftQ": (with_field(init_lora_weights="loftq"), ("init_lora_weights: found 'loftq'",)),
    "LoRA-GA": (with_field(init_lora_weights="lora_ga"), ("init_lora_weights: found 'lora_ga'",)),
    "1 for true": (with_field(init_lora_weights=1), ("init_lora_weights",)),
    "a new method": (with_field(use_nova=True), ("use_nova", "plain LoRA")),
    "no rank": (without("r"), ("adapter_config.json: r: found 'no such field'",)),
    "no target": (with_field(target_modules=["fc"]), ("target_modules: found ['fc']",)),
    "ranks of layers": (
        with_field(rank_pattern={"layers.1.self_attn.q_proj": 3}),
        ("rank_pattern", "layers.1.self_attn.q_proj", "one alpha / rank"),
    ),
    "missing": (
        lambda f, t: t.pop(f"base_model.model.{Q[:-7]}.lora_B.weight"),
        ("layers.1.self_attn.q_proj.lora_B.weight: found no such array", "merge with PEFT"),
    ),
}


@pytest.mark.parametrize(("change", "words"), BAD_ADAPTERS.values(), ids=BAD_ADAPTERS)
def test_an_adapter_that_is_not_plain_and_whole_is_refused(
    change: Change, words: Words, adapter: Changed, source: Path, refuse: Refuse
) -> None:
    refuse(words, "import", adapter(change), "--base", source)


def test_an_adapter_that_fits_is_taken(adapter: Changed, imported: Path, outputs: Path) -> None:
    arguments = ["-i", adapter(as_it_is), "-o", outputs / "dst", "--base", imported]
    assert main(["convert", "import", *map(str, arguments)]) == 0
    assert [path.name for path in outputs.iterdir()] == ["dst"]


def test_an_adapter_without_its_base_is_refused(adapter: Changed, refuse: Refuse) -> None:
    folder = adapter(as_it_is)
    refuse(("--base: found none",), "import", folder)
    refuse(("config.json: path: found No such file",), "import", folder, "--base", folder)


def test_an_adapter_of_another_base_is_refused(
    adapter: Changed, model: Changed, refuse: Refuse
) -> None:
    wider = model(with_field(hidden_size=16))
    words = ("q_proj.lora_A.weight: found (2, 8), expected (2, 16)",)
    refuse(words, "import", adapter(as_it_is), "--base", wider)


# ---------------------------------------------------------------- strange values

STRANGE_FIELDS = {
    "model_type": ["qwen2"],
    "text_config": None,
    "rope_scaling": "linear",
    "head_dim": -4,
    "vocab_size": 10**30,
}


@pytest.mark.parametrize("field", STRANGE_FIELDS)
def test_a_strange_field_is_refused(field: str, model: Changed, refuse: Refuse) -> None:
    folder = model(with_field(**{field: STRANGE_FIELDS[field]}))
    refuse((f"config.json: {field}",), "import", folder)


@pytest.mark.parametrize(("field", "value"), [("target_modules", "("), ("rank_pattern", [1])])
def test_a_strange_field_of_an_adapter_is_refused(
    field: str, value: object, adapter: Changed, source: Path, refuse: Refuse
) -> None:
    folder = adapter(with_field(**{field: value}))
    refuse((f"adapter_config.json: {field}",), "import", folder, "--base", source)


def test_a_number_too_large_for_dtype_is_refused(model: Changed, refuse: Refuse) -> None:
    folder = model(with_number(1e30, ml_dtypes.bfloat16))
    refuse((NORM,), "import", folder, "--dtype", "float16")


def newer_names(fields: dict, tensors: dict) -> None:
    fields["tie_word_embeddings"] = True
    for key in [key for key in tensors if key.startswith("model.")]:
        tensors[key.replace("model.", "model.language_model.", 1)] = tensors.pop(key)


def test_a_tied_head_beside_newer_names_is_compared(model: Changed, refuse: Refuse) -> None:
    refuse((f"{HEAD}: found other numbers",), "import", model(newer_names))
