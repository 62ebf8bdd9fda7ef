"""The whole of `tumorchain compile`, for this machine's CPU in place of the one that is named."""

import runpy
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.ahead_of_time import compile, targets
from tumorchain_jax.ahead_of_time.compile import GIB, compile_one, needed_gib, table
from tumorchain_jax.ahead_of_time.programs import lower_segmentation, lower_training
from tumorchain_jax.ahead_of_time.targets import Target, read_target
from tumorchain_jax.cli.main import main
from tumorchain_jax.models.tumorchain.model import abstract_params
from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.training.registry import build_program

pytestmark = pytest.mark.program
NANO = Path(__file__).parents[2] / "configs" / "nano.py"
NNUNET = NANO.with_name("nnunet.py")


@pytest.fixture(scope="module")
def config() -> ConfigDict:
    config = runpy.run_path(str(NANO))["get_config"]()
    config.update_from_flattened_dict(
        {"optimizer": "adamw", "trainable": ((".*", True),), "data.length": 256, "batch_size": 2}
        | {"scan_unroll": 1}
    )
    return config


@pytest.fixture(scope="module")
def rows(config: ConfigDict) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "devices", lambda self: jax.devices()[:1])
        target = read_target("v5e-4")
        small = replace(target, chip=replace(target.chip, hbm_gib=0.01))
        return {
            "train": compile_one(config, target, "train", 8),
            "reason": compile_one(config, target, "reason", 2),
            "too small": compile_one(config, small, "train", 8),
        }


@pytest.mark.system(haste=True)
def test_training_step_holds_parameters_and_two_moments(
    rows: dict[str, Any], config: ConfigDict
) -> None:
    row = rows["train"]
    weights = sum(4 * prod(leaf.shape) for leaf in abstract_params(config.model).values())
    scan = 2 * prod(config.model.encoder.image)
    assert row["arguments_gib"] * GIB == pytest.approx(3 * weights + scan, rel=0.05)
    assert row["hbm_gib"] >= row["temporaries_gib"] > 0
    assert row["fits"]
    assert "suggestion" not in row
    assert (row["target"], row["devices"], row["accumulation"]) == ("v5e-4", 1, 1)
    assert row["model_tflop"] > 0


@pytest.mark.system(haste=True)
def test_reasoning_loop_holds_the_parameters_once(rows: dict[str, Any]) -> None:
    row = rows["reason"]
    assert row["fits"]
    assert row["batch_size"] == 2
    assert 0 < row["arguments_gib"] < rows["train"]["arguments_gib"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_segmenter_weights_have_its_dtype(dtype: str) -> None:
    config = runpy.run_path(str(NNUNET))["get_config"]()
    strides = ((1, 1, 1), (2, 2, 2))
    network = UNet3DConfig(1, 3, (4, 8), strides, ((3, 3, 3),) * 2, (1, 1), (1,))
    config.segmenter.update({"network": network, "patch_size": (8, 8, 8), "dtype": dtype})
    lowered = lower_segmentation(config, make_mesh(dict(config.mesh), jax.devices()[:1]), 2)
    made = jax.eval_shape(UNet3D(network).init, jax.random.key(0), jnp.zeros((1, 8, 8, 8, 1)))
    params, tiles = lowered.args_info[0]
    assert tiles.shape == (2, 8, 8, 8)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
    assert len(jax.tree.leaves(params)) == len(jax.tree.leaves(made))
    sizes = lowered.compile().memory_analysis()
    assert sizes.output_size_in_bytes >= 2 * 8**3 * 3 * 4  # float32 logits of three classes


@pytest.mark.system(haste=True)
def test_training_step_of_another_task_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    config = runpy.run_path(str(NANO.with_name("nano_segmenter.py")))["get_config"]()
    strides = ((1, 1, 1), (2, 2, 2))
    network = UNet3DConfig(1, 3, (4, 8), strides, ((3, 3, 3),) * 2, (1, 1), (1,))
    config.segmenter.update({"network": network, "patch_size": (8, 8, 8)})
    config.optimizer = "adamw"
    monkeypatch.setattr(Target, "devices", lambda self: jax.devices()[:1])
    row = compile_one(config, read_target("v5e-1"), "train", 1)
    mesh = make_mesh(dict(config.mesh), jax.devices()[:1])
    sizes = lower_training(build_program(config, mesh), mesh).compile().memory_analysis()
    params = jax.eval_shape(UNet3D(network).init, jax.random.key(0), jnp.zeros((1, 8, 8, 8, 1)))
    weights = sum(4 * leaf.size for leaf in jax.tree.leaves(params))
    # Parameters and two moments, a float32 patch and its uint8 labels.
    assert sizes.argument_size_in_bytes == pytest.approx(3 * weights + 8**3 * 5, rel=0.01)
    assert (row["batch_size"], row["accumulation"]) == (1, 1)
    assert "model_tflop" not in row
    assert " train " in table([row])


@pytest.mark.parametrize(("path", "program"), [("nano", "segment"), ("nnunet", "train")])
def test_program_of_another_task_is_refused(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, path: str, program: str
) -> None:
    monkeypatch.setattr(targets, "ENVIRONMENT", {})
    file = str(NANO.with_name(f"{path}.py"))
    args = ["compile", "--config", file, "--target", "v5e-1", "--program", program]
    monkeypatch.setattr(Target, "devices", lambda self: jax.devices()[:1])
    assert main(args) == 2
    assert f"--program: found {program}" in capsys.readouterr().err


@pytest.mark.system(haste=True)
def test_row_that_does_not_fit_has_a_suggestion(rows: dict[str, Any]) -> None:
    row = rows["too small"]
    assert not row["fits"]
    assert row["hbm_gib"] == rows["train"]["hbm_gib"]
    assert row["suggestion"] == "--config.remat=full"


@pytest.mark.parametrize(
    ("refusal", "gib"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (16.84G) exceeds available HBM (15.75G).",
            16.84,
        ),
        ("Ran out of memory in memory space hbm. Used 28.24G of 15.75G hbm.", 28.24),
        ("Used 512.00M of 256.00M hbm", 0.5),
        ("required for HLO temporaries (1.17T) exceeds available HBM (95.74G).", 1.17 * 1024),
        ("something else", None),
    ],
)
def test_memory_needed_is_read_from_the_message(refusal: str, gib: float | None) -> None:
    assert needed_gib(refusal) == (gib if gib is None else pytest.approx(gib))


@pytest.mark.system(haste=True)
def test_table_has_one_line_per_row(rows: dict[str, Any]) -> None:
    head, rule, *lines = table(list(rows.values())).splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in (head, rule, *lines)} == {head.count("|")}
    assert "| yes |" in lines[0]
    assert "| no: try --config.remat=full |" in lines[2]


def test_unknown_machine_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(targets, "ENVIRONMENT", {})
    assert main(["compile", "--config", str(NANO), "--target", "v9-8"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "found v9-8" in err


def test_refusal_has_the_message_of_the_compiler() -> None:
    words = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.\nUsed 28.24G of 15.75G hbm."
    lowered = Mock()
    lowered.compile.side_effect = jax.errors.JaxRuntimeError(words)
    row = compile._compiled(lowered, read_target("v5e-16"))
    assert (row["fits"], row["hbm_gib"]) == (False, 28.24)
    assert row["refusal"] == " ".join(words.split())
