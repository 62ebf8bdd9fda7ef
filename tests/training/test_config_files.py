"""Shipped configurations: their fields, and how a command line overrides and finds them."""

import dataclasses
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import SHIPPED, read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import NANO, TUMORCHAIN_3B, abstract_params
from tumorchain_jax.training.optimizer import split_trainable

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
TUMORCHAIN = sorted(path.stem for path in CONFIGS.glob("tumorchain_*.py"))


def read(name: str, *overrides: str) -> ConfigDict:
    return read_config(Path(name), overrides)


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        read(name, *overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", TUMORCHAIN)
def test_fields_are_those_of_nano(name: str) -> None:
    nano, config = read("nano"), read(name)
    assert config.keys() == nano.keys()
    for field in ("data", "window", "checkpoint", "pretrain"):
        assert config[field].keys() == nano[field].keys(), field
    # A pretraining stage of no steps needs no other field.
    assert config.pretrain.patch_stage.steps == config.pretrain.scan_stage.steps == 0


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_lora_freezes_the_decoder(size: str) -> None:
    config = read(f"tumorchain_{size}_lora")
    trained, frozen = split_trainable(unflatten(abstract_params(config.model)), config.trainable)
    assert all(path.startswith("decoder/") for path in frozen)
    assert all("/lora_" in path for path in trained if path.startswith("decoder/"))
    assert sum("/lora_" in path for path in trained) == 2 * 7  # layers are stacked


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_lora_differs_in_three_fields(size: str) -> None:
    plain, lora = read(f"tumorchain_{size}"), read(f"tumorchain_{size}_lora")
    differing = {name for name in plain if plain[name] != lora[name]}
    assert differing == {"model", "trainable", "learning_rate"}
    assert dataclasses.replace(lora.model, lora=None) == plain.model


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("nano", "model.roi_slots", 16),
        ("nano", "model.roi_source", "global"),
        ("nano", "model.decoder.num_hidden_layers", 2),
        ("nano", "model.decoder.tie_word_embeddings", False),
        ("nano", "model.encoder.image", (32, 48, 48)),
        ("nano", "model.projector.activation", "gelu"),
        ("tumorchain_3b_lora", "model.lora.rank", 8),
        ("tumorchain_3b_lora", "model.lora.ranks", ((".*q_proj", 4),)),
        ("tumorchain_3b_lora", "model.lora", None),
        ("nano_segmenter", "segmenter.network.residual", True),
        ("nano", "data.folder", "gs://bucket/data"),
        ("nano", "lr_multiplier", (("projector/.*", 0.5), (".*", 1.0))),
        ("nano", "initial_roi", True),
        ("nano", "learning_rate", 1.0),
    ],
)
def test_override_sets_one_field(name: str, path: str, value: object) -> None:
    def leaf(config: ConfigDict) -> object:
        node: object = config
        for part in path.split("."):
            node = node[part] if isinstance(node, ConfigDict) else getattr(node, part)
        return node

    before, after = read(name), read(name, f"--config.{path}={value}")
    assert leaf(before) != value
    assert leaf(after) == value
    assert type(leaf(after)) is type(value)
    if not dataclasses.is_dataclass(leaf(before)):
        assert read(name, f"--config.{path}={value}", f"--config.{path}={leaf(before)}") == before


def test_override_leaves_the_shipped_models_alone() -> None:
    assert read("nano", "--config.model.roi_slots=16").model == dataclasses.replace(
        NANO, roi_slots=16
    )
    assert read("nano").model is NANO
    assert read("tumorchain_3b").model is TUMORCHAIN_3B


def test_override_makes_an_adapter_where_there_is_none() -> None:
    words = ("--config.model.lora.rank=4", "--config.model.lora.targets=('decoder/.*_proj',)")
    assert read("nano", *words).model.lora == LoRA(("decoder/.*_proj",), rank=4)
    told = refusal("nano", words[0])
    assert "--config.model.lora: found none" in told
    assert "set --config.model.lora.targets too" in told


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--config.model.roi_slot=16", "one of crop, decoder, dtype,"),
        ("--config.model.roi_slot=16", "did you mean roi_slots?"),
        ("--config.modle.roi_slots=16", "--config.modle: found no such field"),
        ("--config.learning_rat=1", "did you mean learning_rate?"),
        ("--config.model.lora.rnk=8", "did you mean rank?"),
        ("--config.model.roi_slots=many", "found many, expected a whole number"),
        ("--config.model.roi_slots=1.5", "found 1.5, expected a whole number"),
        ("--config.model.roi_source=globl", "found globl, expected encoder or global"),
        ("--config.model.encoder.image=(1,2)", "(a whole number, a whole number, a whole number)"),
        ("--config.model=nano", "set --config.model.FIELD=VALUE"),
        ("--config.data=folder", "set --config.data.FIELD=VALUE"),
        ("--config.steps.first=1", "--config.steps.first: found no such field"),
        ("--config.cot=yes", "--config.cot: found yes, expected true or false"),
        ("--config.cot=1", "--config.cot: found 1, expected true or false"),
        ("--config.steps=1e3", "--config.steps: found 1e3, expected a whole number"),
        ("--config.steps=", "--config.steps: found nothing, expected a whole number"),
        ("--config.trainable=(('a',1),)", "a tuple, each item (text, true or false)"),
        ("--config.cot", "command line: --config.cot: found an unknown argument"),
        ("--seed=1", "command line: --seed=1: found an unknown argument"),
    ],
)
def test_wrong_override_is_refused(word: str, told: str) -> None:
    line = refusal("nano", word)
    assert told in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def get_config(:\n", "invalid syntax in line 1"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("config = 1\n", "has no attribute 'get_config'"),
        ("def get_config():\n    return {}\n", "found a dict"),
        ("def get_config():\n    return 1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_broken_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert main(["train", "--config", str(path), "--workdir", str(tmp_path / "run")]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"tumorchain: error: {path}: --config: found ")
    assert told in line
    assert line.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_name_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SHIPPED.resolve() == CONFIGS
    assert read("nano") == read(str(CONFIGS / "nano.py"))
    (tmp_path / "nano").write_text("")  # no Python file: a path counts before a name
    assert "found a nameless file" in refusal("nano")


def test_unknown_name_lists_the_shipped_ones() -> None:
    told = refusal("tumorchain_3")
    shipped = "experiments, experiments_lens, nano, nano_lens, nano_lens_longer, nano_lora,"
    assert shipped in told
    assert "did you mean tumorchain_3b?" in told


@pytest.mark.system
def test_wheel_holds_the_configurations(tmp_path: Path) -> None:
    """Built without isolation: setuptools of this environment."""
    build = [sys.executable, "-c", BUILD, str(tmp_path / "wheel")]
    environment = {**os.environ, "PYTHONPATH": ""}
    source = tmp_path / "source"
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE", "configs"):
        _copy(ROOT / name, source / name)
    _copy(ROOT / "tumorchain_jax", source / "tumorchain_jax")
    done = subprocess.run(build, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    installed = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(installed)
    assert not (installed / "tumorchain_jax" / "bench").exists()
    assert (installed / "tumorchain_jax" / "py.typed").is_file()
    for path in CONFIGS.glob("*.py"):
        assert (installed / "tumorchain_jax" / "configs" / path.name).read_bytes() == (
            path.read_bytes()
        )
    environment["PYTHONPATH"] = str(installed)
    command = [sys.executable, "-m", "tumorchain_jax.cli.main", "train", "--config", "nano"]
    command += ["--workdir", "run", "--config.steps=x"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{installed}/tumorchain_jax/configs/nano.py: --config.steps: found x" in done.stderr


def test_bench_without_a_checkout_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tumorchain_jax.cli.bench.find_spec", lambda name: None)
    assert main(["bench", "data"]) == 2
    assert capsys.readouterr().err.endswith("run it from a checkout\n")


BUILD = """
import sys
from setuptools import build_meta
build_meta.build_wheel(sys.argv[1])
"""


def _copy(source: Path, target: Path) -> None:
    """A file or a folder, with links as links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
