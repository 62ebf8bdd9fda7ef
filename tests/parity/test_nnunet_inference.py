"""Whole scans against nnU-Net's own predictor on the CPU, the same weights in both."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.transform import Rotation

from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.model_folder import (
    Params,
    SegmentationModel,
    export_nnunet,
    load_segmentation_model,
)
from tumorchain_jax.segmentation.plans import Plan, read_plan
from tumorchain_jax.segmentation.predict import Predictor
from tumorchain_jax.segmentation.preprocess import find_grids, preprocess
from tumorchain_jax.segmentation.tiles import gaussian, tile_starts

torch = pytest.importorskip("torch")
pytest.importorskip("nnunetv2")
pytestmark = pytest.mark.usefixtures("pickles_opened_here")
HASTE = pytest.mark.system(haste=True)

# Of a preprocessed scan's voxels, in units of the plan's standard deviation.
TOLERANCE = 1e-4
# Share of voxels with the same label, summed in float32 here and in float16 there.
AGREEMENT = 0.999
# The same, summed in float16 in both.
EXACT = 0.99999

# Of the plans, where a test names nothing else.
NETWORK = (
    "PlainConvUNet",
    [4, 8, 8],
    [[1, 1, 1], [1, 2, 2], [2, 2, 2]],
    [[1, 3, 3], [3, 3, 3], [3, 3, 3]],
    [1, 1, 1],
    [1, 1],
)
SIZES = {"patch_size": [16, 32, 32], "spacing": [2.0, 1.5, 1.5]}
DATASET = {
    "channel_names": {"0": "CT"},
    "labels": {"background": 0, "liver": 1, "spleen": 2, "colon": 3, "stomach": 4},
    "numTraining": 1,
    "file_ending": ".nii.gz",
}


class Peer:
    """One folder of weights, run by nnU-Net and by us."""

    def __init__(self, folder: Path, plans: dict[str, Any], folds: int = 1):
        (folder / "plans.json").write_text(json.dumps(plans))
        (folder / "dataset.json").write_text(json.dumps(DATASET))
        plan = replace(read_plan(folder), mirror_axes=(0, 1, 2))
        self.folds = tuple(range(folds))
        params = tuple(random_params(plan, fold) for fold in self.folds)
        model = SegmentationModel(plan, params, "", "", tuple(map(str, self.folds)))
        self.folder = folder / "nnunet"
        export_nnunet(model, self.folder)
        self.model = load_segmentation_model(self.folder)

    def theirs(self, mirror: bool = True) -> Any:
        from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

        predictor = nnUNetPredictor(
            use_mirroring=mirror,
            perform_everything_on_device=False,
            device=torch.device("cpu"),
            allow_tqdm=False,
        )
        predictor.initialize_from_trained_model_folder(str(self.folder), self.folds)
        return predictor

    def preprocessed(self, path: Path) -> np.ndarray:
        """`[D, H, W]`, by nnU-Net."""
        predictor = self.theirs()
        configuration = predictor.configuration_manager
        preprocessor = configuration.preprocessor_class(verbose=False)
        data, _, _ = preprocessor.run_case(
            [str(path)], None, predictor.plans_manager, configuration, DATASET
        )
        return data[0]

    def labels(self, path: Path, mirror: bool) -> Volume:
        """As nnU-Net writes them to a file."""
        predictor = self.theirs(mirror)
        reader = predictor.plans_manager.image_reader_writer_class()
        image, properties = reader.read_images([str(path)])
        written = self.folder / "labels"
        predictor.predict_single_npy_array(image, properties, None, str(written), False)
        return volume(Path(f"{written}.nii.gz"))


def random_params(plan: Plan, seed: int) -> Params:
    rng = np.random.default_rng(seed)

    def draw(path: Any, leaf: Any) -> np.ndarray:
        values = rng.normal(float("scale" in str(path)), 0.3, leaf.shape).astype(np.float32)
        # Of a head, features about evenly for and against a class: so none is ahead everywhere.
        return values - values.mean(axis=0) if leaf.ndim == 2 else values

    tile = jax.ShapeDtypeStruct((1, *plan.patch_size, 1), jnp.float32)
    shapes = jax.eval_shape(UNet3D(plan.network).init, jax.random.key(0), tile)
    return jax.tree_util.tree_map_with_path(draw, nn.meta.unbox(shapes)["params"])


def volume(path: Path) -> Volume:
    file = nib.load(path)
    return Volume(np.asarray(file.dataobj), file.affine, str(path))


def assert_same_labels(peer: Peer, path: Path, mirror: bool, in_float32: float = AGREEMENT) -> None:
    scan, expected = volume(path), peer.labels(path, mirror)
    assert len(np.unique(expected.voxels)) > 2
    # In float16, as they do, and in float32.
    for half, least in ((True, EXACT), (False, in_float32)):
        got = Predictor(peer.model, mirror=mirror, half_precision_sum=half)(scan)
        assert got.voxels.dtype == expected.voxels.dtype
        assert (got.voxels == expected.voxels).mean() >= least
        np.testing.assert_allclose(got.affine, expected.affine, atol=1e-4)


@pytest.fixture
def make_peer(tmp_path: Path, nnunet_plans: SimpleNamespace) -> Callable[..., Peer]:
    """Makes one; what is changed is of the plans, but for the number of folds."""

    def make(folds: int = 1, **changes: Any) -> Peer:
        plans = nnunet_plans.make(nnunet_plans.new(*NETWORK), **{**SIZES, **changes})
        return Peer(tmp_path, plans, folds)

    return make


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[..., Path]:
    """Writes a scan of smooth noise, oblique, with a margin of zeros."""

    def write(shape: tuple[int, ...], spacing: tuple[float, ...]) -> Path:
        noise = np.random.default_rng(0).standard_normal(shape)
        voxels = 3000 * ndimage.gaussian_filter(noise, 1.5).astype(np.float32)
        voxels[:3], voxels[:, -2:] = 0, 0
        affine = np.eye(4)
        turn = Rotation.from_euler("xyz", [5, -10, 15], degrees=True).as_matrix()
        affine[:3, :3] = turn @ np.diag(spacing) @ np.diag([-1, -1, 1])
        affine[:3, 3] = 10, 20, -30
        path = tmp_path / "scan.nii.gz"
        nib.save(nib.Nifti1Image(voxels, affine), path)
        return path

    return write


@pytest.mark.parametrize("tile", [(16, 32, 32), (28, 256, 256), (64, 33, 7), (128, 96, 160)])
def test_positions_and_weights_are_theirs(tile: tuple[int, int, int]) -> None:
    from nnunetv2.inference import sliding_window_prediction as theirs

    weights = theirs.compute_gaussian(
        tile, sigma_scale=1.0 / 8, value_scaling_factor=10, device=torch.device("cpu")
    )
    np.testing.assert_array_equal(gaussian(tile), weights.numpy().astype(np.float32))
    for step in (0.3, 0.5, 0.8, 1.0):
        for more in (0, 1, 7, 50, 200):
            size = tuple(length + more for length in tile)
            expected = theirs.compute_steps_for_sliding_window(size, tile, step)
            ours = [tile_starts(*pair, step) for pair in zip(size, tile, strict=True)]
            assert ours == expected


@pytest.mark.parametrize(
    ("shape", "spacing", "changes"),
    [
        ((50, 44, 21), (0.9, 0.8, 2.5), {}),
        ((50, 44, 9), (0.9, 0.8, 5.0), {"spacing": [1.0, 1.5, 0.7]}),
        ((50, 44, 1), (0.9, 0.8, 5.0), {}),
        (
            (50, 44, 21),
            (0.9, 0.8, 2.5),
            {"transpose_forward": [1, 2, 0], "transpose_backward": [2, 0, 1]},
        ),
        ((30, 24, 28), (1.5, 1.5, 2.0), {"spacing": [6.5, 1.5, 2.0]}),
        ((30, 24, 28), (1.5, 1.5, 2.0), {}),
        *[
            ((40, 34, 21), (0.9, 0.8, 2.5), {"normalization_schemes": [f"{scheme}Normalization"]})
            for scheme in ("ZScore", "RescaleTo01", "No")
        ],
        (
            (40, 34, 21),
            (0.9, 0.8, 2.5),
            {"normalization_schemes": ["ZScoreNormalization"], "use_mask_for_norm": [True]},
        ),
    ],
)
def test_a_scan_is_preprocessed_as_by_them(
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    changes: dict[str, Any],
    made_up: Callable[..., Path],
    make_peer: Callable[..., Peer],
) -> None:
    peer, path = make_peer(**changes), made_up(shape, spacing)
    scan, plan = volume(path), peer.model.plan
    got, expected = preprocess(scan, plan, find_grids(scan, plan)), peer.preprocessed(path)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("shape", "spacing", "mirror", "changes"),
    [
        pytest.param((50, 40, 30), (0.9, 0.8, 2.5), True, {"folds": 2}, marks=HASTE),
        ((50, 40, 30), (0.9, 0.8, 2.5), False, {"folds": 2}),
        # Smaller than a tile along some axes, and along all.
        ((70, 20, 9), (0.9, 0.8, 2.5), False, {}),
        ((20, 20, 9), (0.9, 0.8, 2.5), True, {}),
        # Resampled plane by plane, both ways.
        ((70, 60, 12), (0.9, 0.8, 5.0), False, {}),
        pytest.param(
            (40, 50, 30),
            (0.9, 0.8, 2.5),
            True,
            {"transpose_forward": [1, 2, 0], "transpose_backward": [2, 0, 1]},
            marks=HASTE,
        ),
    ],
)
def test_a_scan_has_their_labels(
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    mirror: bool,
    changes: dict[str, Any],
    made_up: Callable[..., Path],
    make_peer: Callable[..., Peer],
) -> None:
    # Noise and random weights leave near-ties, which in so small a scan weigh more: their float16
    # decides them otherwise than float32 does.
    peer = make_peer(**changes)
    assert_same_labels(peer, made_up(shape, spacing), mirror, in_float32=0.998)


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "columns", "spacing", "mirror"),
    [
        ("ct-totalsegmentator/example_ct.nii.gz", slice(None), [6.0, 6.0, 6.0], False),
        # All slices of 512 x 512 voxels take minutes; these are the middle of each.
        ("ct-crlm/CRLM-CT-1006.nii.gz", slice(128, 384), [5.0, 6.0, 6.0], True),
    ],
)
def test_a_real_ct_has_their_labels(
    name: str,
    columns: slice,
    spacing: list[float],
    mirror: bool,
    shared_data: Path,
    tmp_path: Path,
    make_peer: Callable[..., Peer],
) -> None:
    scan = tmp_path / "scan.nii.gz"
    nib.save(nib.load(shared_data / name).slicer[columns, columns], scan)
    assert_same_labels(make_peer(spacing=spacing), scan, mirror)
