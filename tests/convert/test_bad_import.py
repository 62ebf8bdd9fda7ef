"""Damaged imported folders, links, locks: refused in one line, or no obstacle."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    "no manifest": (
        lambda f: (f / "manifest.json").unlink(),
        ("manifest.json: path: found", "a file of JSON"),
    ),
    "torn manifest": (lambda f: os.truncate(f / "manifest.json", 99), ("manifest.json: JSON",)),
    "no config.json": (lambda f: (f / "config.json").unlink(), ("config.json: path: found",)),
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
        import_folder(adapter(lambda fields, tensors: None), tmp_path / "low", base=source)
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
