"""Whatever is wrong, `tumorchain convert` says so in one line, exits with 2 and leaves nothing."""

import json
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
from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.core.files import reserved

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
    refuse((f"{outputs}: disk: found 1000 bytes free", "make room"), "import", source)


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
    refuse(("config.json: JSON: found [Errno 2]",), "import", folder, "--base", folder)


def test_an_adapter_of_another_base_is_refused(
    adapter: Changed, model: Changed, refuse: Refuse
) -> None:
    wider = model(with_field(hidden_size=16))
    words = ("q_proj.lora_A.weight: found (2, 8), expected (2, 16)",)
    refuse(words, "import", adapter(as_it_is), "--base", wider)


# ---------------------------------------------------------------- imported folders


def edit(change: Callable[[dict], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return spoil


def without_field(name: str, tensor: int | None = None) -> Spoil:
    """Of the manifest, or of one of its tensors."""
    return edit(lambda m: (m if tensor is None else m["tensors"][tensor]).pop(name))


def flip(file: Path) -> None:
    """One bit, in the last byte."""
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def as_link(folder: Path) -> None:
    file = folder / "source" / "config.json"
    file.rename(folder.with_name("elsewhere.json"))
    file.symlink_to(folder.with_name("elsewhere.json"))


def another_theta(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace("1000000.0", "10000.0"))


CARRIED = "carried.safetensors"
ARRAY = "params/decoder.layers.self_attn.q_proj.kernel"
DAMAGED = ("q_proj", "a whole array", "import it again")
TOP = ("companions", "family", "dtype", "ignored", "tensors")
ENTRY = ("key", "file", "dtype", "shape", "sha256", "path", "layer")
BAD_IMPORTS: dict[str, tuple[Spoil, Words]] = {
    **{f"no {name}": (without_field(name), ("manifest.json", f"'{name}'")) for name in TOP},
    **{f"tensor's {n}": (without_field(n, -1), ("manifest.json", f"'{n}'")) for n in ENTRY},
    "one tensor fewer": (
        edit(lambda manifest: manifest["tensors"].pop()),
        ("found no such array",),
    ),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), ("manifest.json: JSON", "an object")),
    "torn manifest": (lambda f: os.truncate(f / "manifest.json", 99), ("manifest.json: JSON",)),
    "no config.json": (lambda f: (f / "config.json").unlink(), ("config.json: JSON",)),
    "no source": (lambda f: shutil.rmtree(f / "source"), ("source/config.json: file: found none",)),
    "no array": (lambda f: shutil.rmtree(f / ARRAY), DAMAGED),
    "no chunk": (lambda f: (f / ARRAY / "1.0.0").unlink(), DAMAGED),
    "short chunk": (lambda f: os.truncate(f / ARRAY / "1.0.0", 99), DAMAGED),
    "no image tower": (lambda f: (f / CARRIED).unlink(), (CARRIED, "No such file")),
    "another image tower": (lambda f: flip(f / CARRIED), ("visual.merger.weight", "other bytes")),
    "another chunk": (lambda f: flip(f / ARRAY / "1.0.0"), ("q_proj", "other bytes")),
    "another companion": (
        lambda f: flip(f / "source" / "generation_config.json"),
        ("source/generation_config.json: file: found other bytes",),
    ),
    "a companion elsewhere": (
        edit(lambda m: m.update(companions={"../../secret": "0" * 64})),
        ("found a path out of the folder",),
    ),
    "a linked companion": (as_link, ("config.json: file: found none",)),
    "a file elsewhere": (
        edit(lambda m: m["tensors"][0].update(file="../../out.safetensors")),
        ("manifest.json", "file '../../out.safetensors'"),
    ),
    "another configuration": (another_theta, ("config.json: model: found another model",)),
    "deep JSON": (
        lambda f: (f / "manifest.json").write_text("[" * 10**5),
        ("manifest.json: JSON",),
    ),
    "short image tower": (lambda f: os.truncate(f / CARRIED, 99), (CARRIED, "99 bytes")),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_IMPORTS.values(), ids=BAD_IMPORTS)
def test_damaged_import_is_neither_exported_nor_verified(
    spoil: Spoil, words: Words, source: Path, imported: Path, tmp_path: Path, refuse: Refuse
) -> None:
    folder = shutil.copytree(imported, tmp_path / "imported")
    spoil(folder)
    refuse((str(folder), *words), "export", folder)
    if (folder / "manifest.json").is_file():  # else it is no imported folder at all
        refuse((str(folder), *words), "verify", source, "-o", folder)


@pytest.mark.parametrize("what", ["export", "merge"])
def test_flipped_bit_is_found_after_rounding_and_in_adapters(
    what: str, source: Path, adapter: Changed, tmp_path: Path, refuse: Refuse
) -> None:
    options: tuple[object, ...] = ()
    import_folder(source, tmp_path / "ours", "float32")
    folder, damaged = tmp_path / "ours", tmp_path / "ours" / ARRAY / "1.0.0"
    if what == "merge":
        import_folder(adapter(as_it_is), tmp_path / "low", base=source)
        options = ("--adapter", tmp_path / "low")
        damaged = tmp_path / "low" / ARRAY.replace("kernel", "lora_b") / "1.0.0"
    flip(damaged)
    refuse(("q_proj", "found other bytes"), "export", folder, *options)


def test_links_out_of_the_folder_are_not_followed(
    source: Path, tmp_path: Path, refuse: Refuse
) -> None:
    folder = shutil.copytree(source, tmp_path / "source")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "notes.txt").symlink_to(tmp_path / "secret.txt")
    refuse(("notes.txt: file: found a link to a file elsewhere",), "import", folder)


def test_snapshot_of_the_hubs_cache_is_read(source: Path, tmp_path: Path) -> None:
    """Its files are links to the blobs beside all snapshots."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    shutil.copytree(source, blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    import_folder(snapshot, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "source" / "config.json").read_text())


def test_second_process_at_an_output_is_refused(
    source: Path, imported: Path, outputs: Path, refuse: Refuse
) -> None:
    with reserved(outputs / "dst"):
        refuse(("found another process at work on it", "wait for it"), "import", source)
        refuse(("found another process at work on it", "wait for it"), "export", imported)
    assert not [*outputs.iterdir()]


def test_lock_of_a_killed_process_is_no_obstacle(source: Path, outputs: Path) -> None:
    (outputs / ".dst.lock").touch()
    import_folder(source, outputs / "dst")
    assert [path.name for path in outputs.iterdir()] == ["dst"]


def test_what_was_never_imported_is_not_exported(
    source: Path, imported: Path, tmp_path: Path, refuse: Refuse
) -> None:
    refuse((f"{source}/manifest.json",), "export", source)
    refuse((f"{tmp_path}/none/manifest.json",), "export", tmp_path / "none")
    refuse((f"{source}/manifest.json",), "export", imported, "--adapter", source)
    refuse(("an adapter of",), "export", imported, "--adapter", imported)


def test_imported_folder_is_inspected(imported: Path, source: Path) -> None:
    ours, theirs = convert("inspect", imported, None), convert("inspect", source, None)
    assert ours == theirs


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
