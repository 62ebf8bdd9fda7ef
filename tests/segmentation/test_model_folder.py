"""Model folders of both kinds: what is read is what was written; what is broken is refused."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.segmentation.model_folder import (
    SegmentationModel,
    digest,
    export_nnunet,
    fold_names,
    load_segmentation_model,
    save_segmentation_model,
)
from tumorchain_jax.segmentation.plans import read_plan
from tumorchain_jax.weights.matching import module_shapes

pytestmark = pytest.mark.program
trusted = pytest.mark.usefixtures("pickles_opened_here")


torch = pytest.importorskip("torch")

Write = Callable[[dict, dict], Path]
CHECKPOINT = "fold_0/checkpoint_final.pth"


@cache
def shapes_of(config: UNet3DConfig) -> dict[str, tuple[int, ...]]:
    tile = jax.ShapeDtypeStruct((1, *config.multiple, 1), jnp.float32)
    return module_shapes(UNet3D(config), tile)


@pytest.fixture
def model(plans: dict, dataset: dict, write: Write) -> SegmentationModel:
    """Of two folds, random."""
    plan = replace(
        read_plan(write(plans, dataset)), mirror_axes=(0, 1), trainer="nnUNetTrainerNoMirroring"
    )
    rng = np.random.default_rng(0)
    folds = tuple(
        unflatten({path: rng.standard_normal(shape, np.float32) for path, shape in each.items()})
        for each in [shapes_of(plan.network)] * 2
    )
    return SegmentationModel(plan, folds, digest(plan, folds), "here", ("0", "3"))


@pytest.fixture
def theirs(model: SegmentationModel, tmp_path: Path) -> Path:
    """As nnU-Net has it."""
    export_nnunet(model, tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def ours(model: SegmentationModel, tmp_path: Path) -> Path:
    save_segmentation_model(model, tmp_path / "ours")
    return tmp_path / "ours"


def assert_same(found: SegmentationModel, expected: SegmentationModel) -> None:
    assert found.plan == expected.plan
    assert (found.sha256, found.names) == (expected.sha256, expected.names)
    for one, other in zip(found.folds, expected.folds, strict=True):
        one, other = flatten(one), flatten(other)
        assert one.keys() == other.keys()
        for path, leaf in one.items():
            assert leaf.dtype == np.float32
            np.testing.assert_array_equal(leaf, other[path])


def test_model_comes_back(ours: Path, model: SegmentationModel) -> None:
    assert_same(load_segmentation_model(ours), model)


@trusted
def test_one_fold_comes_back_from_either_folder(
    ours: Path, theirs: Path, model: SegmentationModel
) -> None:
    last = load_segmentation_model(ours, [3])
    assert_same(last, replace(model, folds=model.folds[1:], names=("3",), sha256=last.sha256))
    assert last.sha256 != model.sha256
    assert_same(load_segmentation_model(theirs, [3]), last)


def test_what_is_in_our_folder(ours: Path, plans: dict, dataset: dict) -> None:
    files = sorted(str(path.relative_to(ours)) for path in ours.rglob("*.*"))
    weights = ["fold_0/model.safetensors", "fold_3/model.safetensors"]
    assert files == ["checkpoint.json", "dataset.json", *weights, "plans.json"]
    assert json.loads((ours / "plans.json").read_text()) == plans
    assert json.loads((ours / "dataset.json").read_text()) == dataset
    assert json.loads((ours / "checkpoint.json").read_text()) == {
        "configuration": "3d_fullres",
        "trainer_name": "nnUNetTrainerNoMirroring",
        "inference_allowed_mirroring_axes": [0, 1],
    }
    assert "encoder/stage1_conv0/kernel" in load_file(ours / weights[0])


def test_fold_of_all_scans_is_read_if_there_is_no_other(theirs: Path) -> None:
    shutil.copytree(theirs / "fold_3", theirs / "fold_all")
    assert fold_names(theirs) == ["0", "3"]
    assert fold_names(theirs, ["all", 0]) == ["all", "0"]
    shutil.rmtree(theirs / "fold_0")
    shutil.rmtree(theirs / "fold_3")
    assert fold_names(theirs) == ["all"]


@trusted
def test_folders_and_plans_without_mirroring(ours: Path, theirs: Path) -> None:
    def mirroring(path: Path) -> Any:
        return torch.load(path / CHECKPOINT, weights_only=True)["inference_allowed_mirroring_axes"]

    assert mirroring(theirs) == (0, 1)
    told = json.loads((ours / "checkpoint.json").read_text())
    told["inference_allowed_mirroring_axes"] = None
    (ours / "checkpoint.json").write_text(json.dumps(told))
    without = load_segmentation_model(ours)
    assert without.plan.mirror_axes == ()
    export_nnunet(without, ours / "back")
    assert mirroring(ours / "back") is None


Change = Callable[[dict[str, Any]], Any]


def change(folder: Path, how: Change) -> None:
    """Do something to the first checkpoint."""
    checkpoint = torch.load(folder / CHECKPOINT, weights_only=True)
    how(checkpoint)
    torch.save(checkpoint, folder / CHECKPOINT)


@trusted
def test_names_of_training_are_known_and_half_precision_is_widened(
    theirs: Path, model: SegmentationModel
) -> None:
    def compiled(checkpoint: dict) -> None:
        weights = checkpoint["network_weights"]
        renamed = {f"module._orig_mod.{key}": value.half() for key, value in weights.items()}
        checkpoint["network_weights"] = renamed

    change(theirs, compiled)
    found = flatten(load_segmentation_model(theirs, [0]).folds[0])
    for path, leaf in flatten(model.folds[0]).items():
        assert found[path].dtype == np.float32
        np.testing.assert_array_equal(found[path], leaf.astype(np.float16))


@trusted
def test_numpys_numbers_in_the_log_are_no_code(theirs: Path, model: SegmentationModel) -> None:
    """Under the name that numpy 1 gives them; that of numpy 2 is in tests/parity."""
    log = {"mean_fg_dice": [np.float64(0.5), np.float32(0.25)], "lrs": [1e-2], "n": np.int64(3)}
    change(theirs, lambda checkpoint: checkpoint.update(logging=log, _best_ema=np.float64(0.5)))
    path = theirs / CHECKPOINT
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part.replace(b"numpy._core", b"numpy.core"))
    assert b"numpy.core.multiarray" in path.read_bytes()
    found = load_segmentation_model(theirs, [0])
    assert_same(found, replace(model, folds=model.folds[:1], names=("0",), sha256=found.sha256))


# ---------------------------------------------------------------- what is refused


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_code_in_a_checkpoint_is_refused_and_not_run(theirs: Path, tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    change(theirs, lambda checkpoint: checkpoint.update(logging=Malicious(trace)))
    with pytest.raises(InputError, match="pickle: found getattr in it, expected tensors alone"):
        load_segmentation_model(theirs)
    assert not trace.exists()


@trusted
def test_weights_of_two_dimensions_are_refused(theirs: Path) -> None:
    key = "encoder.stages.1.0.convs.0.conv.weight"
    flat = torch.zeros(6, 4, 3, 3)
    change(theirs, lambda checkpoint: checkpoint["network_weights"].update({key: flat}))
    words = f"{key}: found (6, 4, 3, 3), expected (6, 4, 3, 3, 3)"
    with pytest.raises(InputError, match=re.escape(words)):
        load_segmentation_model(theirs)


@trusted
@pytest.mark.parametrize(
    "copy",
    [
        "decoder.encoder.stages.1.0.convs.0.conv.weight",
        "decoder.encoder.stages.1.0.convs.0.all_modules.0.weight",
        "encoder.stages.1.0.convs.0.all_modules.1.bias",
        "decoder.stages.0.convs.0.all_modules.0.bias",
    ],
)
def test_checkpoint_whose_copy_of_a_tensor_differs_is_refused(copy: str, theirs: Path) -> None:
    """PyTorch would take the copy, which comes last."""
    values = torch.load(theirs / CHECKPOINT, weights_only=False)
    weights = values["network_weights"]
    weights[copy] = weights[copy] + 1
    torch.save(values, theirs / CHECKPOINT)
    with pytest.raises(InputError, match=re.escape(f"{copy}: found other numbers than")):
        load_segmentation_model(theirs)


@trusted
def test_checkpoint_with_a_copy_of_nothing_is_refused(theirs: Path) -> None:
    values = torch.load(theirs / CHECKPOINT, weights_only=False)
    values["network_weights"]["decoder.encoder.stages.9.0.convs.0.conv.weight"] = torch.zeros(3)
    torch.save(values, theirs / CHECKPOINT)
    with pytest.raises(
        InputError, match=r"decoder\.encoder\.stages\.9.*: found \(3,\), expected no such array"
    ):
        load_segmentation_model(theirs)


@trusted
def test_folds_of_two_configurations_are_refused(ours: Path, theirs: Path) -> None:
    """The first as nnU-Net has it, the second as we do."""
    (theirs / "fold_3" / "checkpoint_final.pth").unlink()
    shutil.copytree(ours / "fold_3", theirs / "fold_3", dirs_exist_ok=True)
    shutil.copy(ours / "checkpoint.json", theirs)
    tell(theirs, configuration="3d_large")
    with pytest.raises(InputError, match="fold_3: found 3d_large, expected 3d_fullres, as fold_0"):
        load_segmentation_model(theirs)


def tell(folder: Path, **values: Any) -> None:
    """Change checkpoint.json; None removes a field."""
    path = folder / "checkpoint.json"
    told = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in told.items() if value is not None}))


Tensors = dict[str, np.ndarray]
KERNEL = "encoder/stage1_conv0/kernel"


def with_tensors(how: Callable[[Tensors], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "fold_0" / "model.safetensors"
        tensors = load_file(path)
        how(tensors)
        save_file(tensors, path)

    return spoil


def cut_short(folder: Path) -> None:
    path = folder / "fold_3" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def one_label_less(folder: Path) -> None:
    """The data set of another model."""
    values = json.loads((folder / "dataset.json").read_text())
    del values["labels"]["liver"]
    (folder / "dataset.json").write_text(json.dumps(values))


BAD_FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut short": (cut_short, "fold_3/model.safetensors: size: found"),
    "another data set": (
        one_label_less,
        "decoder/stage0_head/bias: found (3,), expected (2,)",
    ),
    "a missing tensor": (
        with_tensors(lambda t: t.pop(KERNEL)),
        f"{KERNEL}: found no such array, expected (3, 3, 3, 4, 6)",
    ),
    "a tensor more": (
        with_tensors(lambda t: t.update({"norm/mean": t[KERNEL]})),
        "norm/mean: found (3, 3, 3, 4, 6), expected no such array",
    ),
    "integers": (
        with_tensors(lambda t: t.update({KERNEL: t[KERNEL].astype(np.int32)})),
        f"{KERNEL}: found int32, expected float32",
    ),
    "NaN": (
        with_tensors(lambda t: t[KERNEL].reshape(-1).__setitem__(-1, np.nan)),
        f"fold_0/model.safetensors: {KERNEL}: found NaN or infinity as float32",
    ),
    "no checkpoint.json": (
        lambda folder: (folder / "checkpoint.json").unlink(),
        "checkpoint.json: path: found",
    ),
    "no plans": (lambda folder: (folder / "plans.json").unlink(), "plans.json: path: found"),
    "no configuration": (
        lambda folder: tell(folder, configuration=None),
        "checkpoint.json: configuration: found no such field",
    ),
    "no trainer": (
        lambda folder: tell(folder, trainer_name=None),
        "checkpoint.json: trainer_name: found no such field",
    ),
    "another configuration": (
        lambda folder: tell(folder, configuration="3d_lowres"),
        "plans.json: configurations.3d_lowres: found no such field, expected one of 3d_fullres, 2d",
    ),
    "a fourth axis": (
        lambda folder: tell(folder, inference_allowed_mirroring_axes=[0, 3]),
        "inference_allowed_mirroring_axes: found [0, 3]",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_folder_that_is_wrong_is_refused(
    spoil: Callable[[Path], Any], words: str, ours: Path
) -> None:
    spoil(ours)
    with pytest.raises(InputError, match=re.escape(words)):
        load_segmentation_model(ours)


def test_fold_that_is_not_there_is_refused(ours: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="fold_1: found none, expected one of 0 3; use an existing fold"
    ):
        load_segmentation_model(ours, [0, 1])
    with pytest.raises(InputError, match="fold_0: found none, expected model"):
        load_segmentation_model(tmp_path)


def test_folder_that_is_there_is_left_alone(ours: Path, model: SegmentationModel) -> None:
    for write in (save_segmentation_model, export_nnunet):
        with pytest.raises(InputError, match="output: found there already"):
            write(model, ours)
    assert_same(load_segmentation_model(ours), model)


# ---------------------------------------------------------------- tumorchain convert


@pytest.mark.system(haste=True)
def test_convert_inspects_imports_exports_and_verifies(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(what: str, source: Path, *more: object) -> tuple[int, dict[str, Any]]:
        code = main(["convert", what, "-i", str(source), "--json", *map(str, more)])
        return code, json.loads(capsys.readouterr().out)

    shutil.rmtree(theirs / "fold_3")
    code, told = run("inspect", theirs)
    assert (code, told["family"]) == (0, "nnunet")
    assert told["parameters"]["decoder/stage0_upsample/kernel"] == {
        "shape": [2, 2, 2, 6, 6],
        "from": "decoder.transpconvs.0.weight",
    }
    count = len(told["parameters"])
    new, back = tmp_path / "new", tmp_path / "back"
    assert run("import", theirs, "-o", new) == (0, {"output": str(new), "tensors": count})
    assert run("export", new, "-o", back) == (0, {"output": str(back), "tensors": count})
    code, told = run("verify", new, "-o", back)
    assert (code, told["same"], len(told["equal"])) == (0, True, count + 1)

    def shift(checkpoint: dict) -> None:
        checkpoint["network_weights"]["decoder.seg_layers.0.bias"] += 1
        checkpoint["inference_allowed_mirroring_axes"] = None

    change(back, shift)
    code, told = run("verify", new, "-o", back)
    assert (code, told["same"]) == (1, False)
    assert told["different"] == ["fold_0/decoder/stage0_head/bias", "plan"]


def test_convert_refuses_a_checkpoint_that_is_cut_short_in_one_line(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = theirs / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1000])
    arguments = ["convert", "import", "-i", str(theirs), "-o", str(tmp_path / "new")]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tumorchain: error: {path}: pickle: found")
    assert said.count("\n") == 1
    assert not (tmp_path / "new").exists()
    assert main([*arguments, "--dtype", "float16"]) == 2
    assert "--dtype: found float16, expected float32" in capsys.readouterr().err
