"""nnU-Net's networks against nnunetv2 itself: logits on random weights, checkpoints both ways."""

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.convert.command import convert
from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.segmentation.model_folder import load_segmentation_model
from tumorchain_jax.segmentation.plans import Plan, read_plan

torch = pytest.importorskip("torch")
pytest.importorskip("nnunetv2")
unet = pytest.importorskip("dynamic_network_architectures.architectures.unet")
pytestmark = [
    pytest.mark.usefixtures("pickles_opened_here"),
    pytest.mark.filterwarnings("ignore:Detected old nnU-Net plans format:UserWarning"),
]

# Largest absolute difference of logits, which are of some units, in float32.
TOLERANCE = 1e-4
# The same over the largest logit, for bfloat16.
HALF_TOLERANCE = 0.1

# Features, strides and kernels.
ISOTROPIC = [4, 8, 8], [[1, 1, 1], [2, 2, 2], [2, 2, 2]], [[3, 3, 3]] * 3
# One stage is as large as the one before, one has as many channels.
ANISOTROPIC = (
    [4, 8, 16, 16],
    [[1, 1, 1], [1, 2, 2], [1, 1, 1], [2, 1, 2]],
    [[1, 3, 3], [1, 3, 3], [3, 3, 3], [3, 3, 1]],
)
FULL = [32, 64, 128, 256, 320, 320], [[1, 1, 1], *[[2, 2, 2]] * 5], [[3, 3, 3]] * 6
SIZES = {"isotropic": ISOTROPIC, "anisotropic": ANISOTROPIC}
KINDS = ("PlainConvUNet", "ResidualEncoderUNet")


DATASET = {
    "channel_names": {"0": "CT"},
    "labels": {"background": 0, "liver": 1, "spleen": 2},
    "numTraining": 1,
    "file_ending": ".nii.gz",
}


@pytest.fixture(scope="module")
def nnunet() -> Any:
    """nnU-Net's own: plans, networks, predictor and trainer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
        from nnunetv2.training.logging.nnunet_logger import LocalLogger
        from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
    return SimpleNamespace(
        Predictor=nnUNetPredictor,
        Logger=LocalLogger,
        Trainer=nnUNetTrainer,
        PlansManager=PlansManager,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "theirs" / "fold_0").mkdir(parents=True)
    return tmp_path / "theirs"


def build(nnunet: Any, plans: dict[str, Any], folder: Path) -> Any:
    """nnU-Net's network of a plan, with random parameters; its files but for the checkpoint."""
    (folder / "plans.json").write_text(json.dumps(plans))
    (folder / "dataset.json").write_text(json.dumps(DATASET))
    manager = nnunet.PlansManager(plans)
    configuration = manager.get_configuration("3d_fullres")
    torch.manual_seed(0)
    classes = len(DATASET["labels"])
    model = nnunet.Trainer.build_network_architecture(manager, configuration, 1, classes, False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            is_scale = "norm" in name and name.endswith("weight")
            torch.nn.init.normal_(parameter, float(is_scale), 0.3)
    return model.eval()


def save(nnunet: Any, model: Any, folder: Path) -> None:
    """The checkpoint as nnU-Net's trainer writes it, its log and optimizer with something in it."""
    logger, optimizer = nnunet.Logger(), torch.optim.SGD(model.parameters(), 1e-9, momentum=0.9)
    for values in logger.my_fantastic_logging.values():
        values.extend([np.float64(0.5), np.float32(0.25), 1.0])
    logger.my_fantastic_logging["dice_per_class_or_region"].append([np.float64(0.1), np.nan])
    model(torch.zeros(1, 1, *[16] * 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    init_args = {
        "plans": json.loads((folder / "plans.json").read_text()),
        "configuration": "3d_fullres",
        "fold": 0,
        "dataset_json": DATASET,
        "device": torch.device("cpu"),
    }
    # What its `save_checkpoint` looks at.
    trainer = type("nnUNetTrainer", (SimpleNamespace,), {})(
        local_rank=0,
        disable_checkpointing=False,
        is_ddp=False,
        network=model,
        optimizer=optimizer,
        grad_scaler=None,
        logger=SimpleNamespace(get_checkpoint=lambda: logger.my_fantastic_logging),
        _best_ema=np.float64(0.5),
        current_epoch=4,
        my_init_kwargs=init_args,
        inference_allowed_mirroring_axes=(0, 2),
    )
    nnunet.Trainer.save_checkpoint(trainer, str(folder / "fold_0" / "checkpoint_final.pth"))


def random_tile(*size: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, *size, 1)).astype(np.float32)


def their_logits(network: Any, tile: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = network(torch.from_numpy(np.moveaxis(tile, -1, 1).copy()))
    return np.moveaxis(logits.numpy(), 1, -1)


def our_logits(plan: Plan, params: Any, tile: np.ndarray, dtype: Any = jnp.float32) -> np.ndarray:
    return np.asarray(jax.jit(UNet3D(plan.network, dtype).apply)({"params": params}, tile))


def our_parameters(folder: Path, theirs: Any) -> Any:
    """The parameters of its checkpoint, as we read it."""
    checkpoint = {
        "network_weights": theirs.state_dict(),
        "trainer_name": "nnUNetTrainer",
        "init_args": {"configuration": "3d_fullres"},
    }
    torch.save(checkpoint, folder / "fold_0" / "checkpoint_final.pth")
    return load_segmentation_model(folder).folds[0]


@pytest.mark.parametrize(
    ("kind", "plans_format", "sizes"),
    [  # every pair of two of them
        ("PlainConvUNet", "old", "isotropic"),
        ("PlainConvUNet", "new", "anisotropic"),
        ("ResidualEncoderUNet", "old", "anisotropic"),
        ("ResidualEncoderUNet", "new", "isotropic"),
    ],
)
def test_logits_equal_nnunet(
    kind: str,
    plans_format: str,
    sizes: str,
    nnunet: Any,
    nnunet_plans: SimpleNamespace,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where plans of the older format look for the residual network, which has moved since.
    moved_from = f"{unet.__package__}.residual_unet"
    monkeypatch.setitem(sys.modules, moved_from, unet)
    monkeypatch.setattr(moved_from, unet, raising=False)
    stages = len(SIZES[sizes][0])
    blocks, decoder = [1, 3, 2, 1][:stages], [2, 1, 3][: stages - 1]
    network = getattr(nnunet_plans, plans_format)(kind, *SIZES[sizes], blocks, decoder)
    theirs = build(nnunet, nnunet_plans.make(network), folder)
    plan = read_plan(folder)
    assert plan.network.residual == (kind == "ResidualEncoderUNet")
    params, tile = our_parameters(folder, theirs), random_tile(8, 16, 24)
    expected = their_logits(theirs, tile)
    assert np.abs(expected).max() > 1
    assert_close(our_logits(plan, params, tile), expected, TOLERANCE)
    if (plans_format, sizes) == ("new", "anisotropic"):
        half = our_logits(plan, params, tile, jnp.bfloat16)
        assert half.dtype == np.float32
        assert_close(half, expected, HALF_TOLERANCE * np.abs(expected).max())


def assert_close(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert got.shape == expected.shape
    difference = np.abs(got - expected).max()
    print(f"largest difference {difference:.2e}, largest logit {np.abs(expected).max():.1f}")
    assert difference <= tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_go_in_and_out(
    kind: str, nnunet: Any, nnunet_plans: SimpleNamespace, folder: Path, tmp_path: Path
) -> None:
    network = nnunet_plans.new(kind, *ANISOTROPIC, [1, 2, 1, 1], [1, 1, 1])
    theirs = build(nnunet, nnunet_plans.make(network), folder)
    save(nnunet, theirs, folder)
    ours, back = tmp_path / "ours", tmp_path / "back"
    convert("import", folder, ours, None, None, None)
    convert("export", ours, back, None, None, None)
    assert convert("verify", folder, back, None, None, None)["same"]
    model = load_segmentation_model(ours)
    assert (model.plan.mirror_axes, model.plan.trainer) == ((0, 2), "nnUNetTrainer")

    predictor = nnunet.Predictor(device=torch.device("cpu"))
    predictor.initialize_from_trained_model_folder(str(back), (0,))
    assert predictor.allowed_mirroring_axes == (0, 2)
    state = theirs.state_dict()
    [found] = predictor.list_of_parameters
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], value) for key, value in state.items())
    tile = random_tile(8, 16, 16)
    expected = their_logits(predictor.network.eval(), tile)
    np.testing.assert_array_equal(expected, their_logits(theirs, tile))
    assert_close(our_logits(model.plan, model.folds[0], tile), expected, TOLERANCE)


@pytest.mark.system
def test_the_network_of_the_usual_size(
    nnunet: Any, nnunet_plans: SimpleNamespace, folder: Path
) -> None:
    """31 million parameters, as TotalSegmentator's, on a tile that ends in 2 x 2 x 1 voxels."""
    network = nnunet_plans.old("PlainConvUNet", *FULL, [2] * 6, [2] * 5)
    theirs = build(nnunet, nnunet_plans.make(network, patch_size=[64, 64, 32]), folder)
    plan = read_plan(folder)
    params, tile = our_parameters(folder, theirs), random_tile(64, 64, 32)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 31_196_399
    assert_close(our_logits(plan, params, tile), their_logits(theirs, tile), TOLERANCE)
