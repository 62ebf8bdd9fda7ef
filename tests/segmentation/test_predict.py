from dataclasses import replace

import jax
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.unet3d import model as unet3d
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.model_folder import SegmentationModel
from tumorchain_jax.segmentation.plans import Resampling, Spline
from tumorchain_jax.segmentation.predict import Predictor

pytestmark = pytest.mark.program


def scan_of(*shape: int, spacing: float = 1.5) -> Volume:
    voxels = np.random.default_rng(0).uniform(-900, 900, shape).astype(np.float32)
    affine = np.diag([-spacing, spacing, spacing, 1.0])
    affine[:3, 3] = 7, 8, 9
    return Volume(voxels, affine, "scan")


@pytest.fixture(scope="module")
def model(small_model) -> SegmentationModel:
    """Of two folds, and of no label everywhere."""
    rng = np.random.default_rng(0)

    def draw(leaf: np.ndarray) -> np.ndarray:
        # Norms and biases stay as they are: no class is ahead of the others.
        return rng.normal(0, 0.5, leaf.shape).astype(np.float32) if leaf.ndim > 1 else leaf

    drawn = small_model(folds=2)
    return replace(drawn, folds=tuple(jax.tree.map(draw, fold) for fold in drawn.folds))


def test_one_program_serves_scans_of_all_sizes(model, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    convolve = unet3d.convolve
    monkeypatch.setattr(unet3d, "convolve", lambda *a: [traced.append(1), convolve(*a)][1])
    predictor = Predictor(model, tiles_at_once=2)
    # Three convolutions of a plain network, in a loop over mirror images.
    assert len(traced) == 3
    for scan in (scan_of(30, 26, 12), scan_of(9, 20, 33), scan_of(8, 8, 1)):
        labels = predictor(scan)
        assert labels.shape == scan.shape
        assert labels.voxels.dtype == np.uint8
        assert labels.affine is scan.affine
        assert len(np.unique(labels.voxels)) == 3
    assert len(traced) == 3


def test_what_options_change(model) -> None:
    scan = scan_of(30, 26, 12)
    plain = Predictor(model)(scan).voxels
    np.testing.assert_array_equal(Predictor(model, tiles_at_once=3)(scan).voxels, plain)
    half = Predictor(model, half_precision_sum=True)(scan).voxels
    assert (half == plain).mean() > 0.99
    rounded = Predictor(model, dtype="bfloat16")(scan).voxels
    assert 0.9 < (rounded == plain).mean() < 1
    for other in (
        Predictor(model, mirror=False),
        Predictor(model, step=0.25),
        Predictor(replace(model, folds=model.folds[:1])),
    ):
        assert (other(scan).voxels == plain).mean() < 1


def test_nothing_starts_without_memory(model, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(model, memory_gib=1e-4)
    monkeypatch.setattr("tumorchain_jax.segmentation.predict.preprocess", None)
    with pytest.raises(InputError, match=r"scan: memory: found a scan that needs .* GiB"):
        predictor(scan_of(30, 26, 12))


@pytest.mark.parametrize(("half", "hint"), [(True, "sum in float32"), (False, "use other weights")])
def test_logits_that_are_no_numbers_are_an_error(half: bool, hint: str, model) -> None:
    grown = jax.tree.map(lambda x: x * (1e5 if half else np.inf), model.folds[0])
    predictor = Predictor(replace(model, folds=(grown,)), half_precision_sum=half)
    with pytest.raises(InputError, match=f"small model: logits: .*{hint}"):
        predictor(scan_of(16, 16, 16))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"step": 0.0}, "step: found 0.0"),
        ({"step": 1.1}, "step: found 1.1"),
        ({"tiles_at_once": 0}, "tiles_at_once: found 0"),
    ],
)
def test_options_out_of_range(options, line: str, model) -> None:
    with pytest.raises(InputError, match=line):
        Predictor(model, **options)


def test_models_that_are_not_run_here(model, small_plan) -> None:
    network = replace(small_plan.network, in_channels=2)
    with pytest.raises(InputError, match="found 2 channels"):
        Predictor(replace(model, plan=replace(small_plan, network=network)))
    cubic = Resampling(small_plan.resampling.image, Spline(3, 0, None, 3.0))
    with pytest.raises(InputError, match="resampling_fn_probabilities: found order 3"):
        Predictor(replace(model, plan=replace(small_plan, resampling=cubic)))
