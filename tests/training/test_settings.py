"""What `check_settings` and the memory check refuse; `train` and `preflight` refuse the same."""

import math
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import SHIPPED, read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh
from tumorchain_jax.training import memory
from tumorchain_jax.training.memory import check_memory, step_bytes
from tumorchain_jax.training.settings import check_settings
from tumorchain_jax.training.tumorchain.program import build_program

TRAINED = sorted(path.stem for path in SHIPPED.glob("*.py") if path.stem != "nnunet")
WRONG = {
    "steps": (0, -1),
    "learning_rate": (0.0, -1e-3, math.nan, math.inf),
    "warmup_ratio": (-0.1, 1.1, math.nan),
    "weight_decay": (-1.0, math.nan),
    "clip_norm": (0.0, -1.0, math.nan),
    "alpha": (-1.0, math.inf),
    "batch_size": (0,),
    "micro_batch_size": (0, -2),
    "seed": (-1, 2**32),
    "history": ("none", "All"),
    "optimizer": ("sgd",),
    "remat": ("some",),
    "attention": ("flash",),
    "frozen_dtype": ("int8",),
    "logits_chunks": (0, 7),
    "scan_unroll": (0,),
    "log_every": (0,),
    "lr_multiplier": (((".*", -1.0),), (("(", 1.0),)),
    "trainable": ((("(", True),),),
    "data.length": (0,),
    "data.phantoms": (-1,),
    "window.width": (0.0, math.nan),
    "window.level": (math.inf,),
    "checkpoint.every": (0,),
    "checkpoint.keep": (0,),
    "checkpoint.minutes": (-1.0,),
    "watch.hang_timeout_s": (-1.0,),
    "model.roi_slots": (0,),
    "model.dtype": ("float8",),
    "model.encoder.image": ((4, 80, 80), (68, 80, 80)),
    "model.global_pool": (3,),
    "model.decoder.num_key_value_heads": (0, 3),
    "pretrain.patch_stage.steps": (-1,),
    "pretrain.patch_stage.crops_per_scan": (0,),
    "pretrain.scan_stage.scans": (0,),
    "pretrain.scan_stage.learning_rate": (math.nan,),
}


def nano(*overrides: str) -> ConfigDict:
    return read_config(Path("nano"), overrides)


@pytest.mark.parametrize("name", TRAINED)
def test_shipped_settings_are_accepted(name: str) -> None:
    check_settings(read_config(Path(name), []))


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in WRONG.items() for value in values]
)
def test_wrong_setting_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^config: {field}: found .*, expected") as caught:
        check_settings(nano(f"--config.{field}={value}"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("cot", "no"), ("initial_roi", 1), ("steps", True), ("steps", 10.0)]
)
def test_wrong_type_in_a_file_is_refused(field: str, value: Any) -> None:
    config = nano()
    with config.unlocked(), config.ignore_type():
        config[field] = value
    with pytest.raises(InputError, match=f"^config: {field}: found {value}"):
        check_settings(config)


def test_missing_field_is_refused_by_name() -> None:
    config = nano()
    with config.unlocked():
        del config.remat
    with pytest.raises(InputError, match="config: remat: found no such field"):
        check_settings(config)
    large = read_config(Path("tumorchain_3b"), ["--config.pretrain.patch_stage.steps=5"])
    with pytest.raises(InputError, match="crops_per_scan: found no such field"):
        check_settings(large)


@pytest.mark.parametrize(
    "words",
    [
        ["--config.steps=0"],
        ["--config.learning_rate=nan"],
        ["--config.warmup_ratio=2"],
        ["--config.history=none"],
        ["--config.logits_chunks=0"],
        ["--config.micro_batch_size=3"],
        ["--config.data.length=10000000"],
    ],
)
def test_train_and_preflight_refuse_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    arguments = ["--config", "nano", "--workdir", str(tmp_path / "run"), *words]
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert main(["preflight", *arguments]) == 2
    told = error.removeprefix("tumorchain: error: ").split("; ")[0].split(" GiB")[0]
    assert told in capsys.readouterr().out
    assert not (tmp_path / "run" / "data").exists()


def test_memory_of_a_long_row_is_refused_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    config = nano("--config.data.length=65536")
    mesh = make_mesh(dict(config.mesh))
    program = build_program(config, mesh)
    needed = step_bytes(config, program, mesh) * len(mesh.local_devices)
    monkeypatch.setattr(memory, "free_bytes", lambda: needed)
    check_memory(config, program, mesh)
    monkeypatch.setattr(memory, "free_bytes", lambda: needed - 1)
    with pytest.raises(InputError, match="memory: found a step of at least"):
        check_memory(config, program, mesh)


@pytest.mark.system(haste=True)
@pytest.mark.parametrize("remat", ["none", "full"])
def test_memory_bound_is_below_what_the_compiler_needs(remat: str) -> None:
    config = nano("--config.data.length=1536", f"--config.remat={remat}")
    mesh = make_mesh(dict(config.mesh))
    program = build_program(config, mesh)
    step: Any = program.step
    with on_mesh(mesh):
        found = step.lower(program.state, program.batch).compile().memory_analysis()
    compiled = found.argument_size_in_bytes + found.temp_size_in_bytes
    assert 0.1 < step_bytes(config, program, mesh) / compiled < 1
