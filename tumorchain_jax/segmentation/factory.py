"""Segmenter factory: our networks with some weights, an installed TotalSegmentator, or none."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.pretrained import NANO_SEGMENTER
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.cache import SegmentationCache
from tumorchain_jax.segmentation.installed import installed_totalsegmentator
from tumorchain_jax.segmentation.model_folder import SegmentationModel, load_segmentation_model
from tumorchain_jax.segmentation.plans import DATASET, PLANS, read_plan
from tumorchain_jax.segmentation.predict import Dtype, Predictor
from tumorchain_jax.segmentation.total import (
    FAST_MODEL,
    FAST_SPACING_MM,
    ORDER,
    SPACING_MM,
    STEP,
    TOTAL_MODELS,
    OrganModel,
    TotalSegmenter,
)
from tumorchain_jax.weights.catalogue import CATALOGUE
from tumorchain_jax.weights.pull import is_pulled, totalsegmentator_weights

NANO_NAME = "the nano segmenter, which has seen digital patients alone"
NO_SEGMENTER = TotalSegmenter("none", ())
Kind = Literal["jax", "totalsegmentator", "none"]


def make_segmenter(
    kind: Kind = "jax",
    weights: str | Path | None = None,
    *,
    fast: bool = False,
    order: int = ORDER,
    dtype: Dtype = "float32",
    organs: Collection[str] | None = None,
    cache: SegmentationCache | None = None,
    quiet: bool = False,
) -> TotalSegmenter:
    """Make the segmenter that a user asks for.

    Args:
        kind: our networks, an installed TotalSegmentator, or none.
        weights: folder of weights for our networks; empty: the folder of TotalSegmentator's own;
            None: TotalSegmentator's own if they are there, else the nano segmenter that ships with
            the package.
        fast: use the 3 mm model of TotalSegmentator.
        order: of the spline that resamples a scan for TotalSegmentator's models.
        dtype: of our networks' computation.
        organs: to ask an installed TotalSegmentator for; None: all.
        cache: stores label maps between runs.
        quiet: show no progress.

    Raises:
        InputError: the weights or the program are missing, or the options exclude each other.
    """
    ours = {"--weights": weights is not None, "--segmenter-dtype": dtype != "float32"}
    for flag, given in {**ours, "--fast": fast and kind == "none"}.items():
        if given and kind != "jax":
            hint = "leave out one of the two"
            raise InputError("command line", flag, f"--segmenter {kind}", "--segmenter jax", hint)
    if kind == "jax" and weights is None:
        fast = fast or (default_weights() is None and default_weights(fast=True) is not None)
        weights = default_weights(fast)
    if fast and kind == "jax" and weights is None:
        expected = "TotalSegmentator's weights, of which it takes the 3 mm model"
        hint = "fetch them with `tumorchain weights pull totalsegmentator-fast`, or add --weights"
        raise InputError("command line", "--fast", "no weights", expected, hint)
    if kind == "none":
        return NO_SEGMENTER
    if kind == "totalsegmentator":
        model = installed_totalsegmentator(fast, order, organs)
        found = TotalSegmenter(model.name, (model,))
    elif weights is None:
        found = nano_segmenter(dtype)
    else:
        folder = Path(weights) if str(weights) else totalsegmentator_weights()
        found = read_segmenter(folder, fast, order, dtype)
    return replace(found, cache=cache, quiet=quiet)


def nano_segmenter(dtype: Dtype = "float32") -> TotalSegmenter:
    """Make the segmenter that ships with the package."""
    return replace(read_segmenter(NANO_SEGMENTER, dtype=dtype), name=NANO_NAME)


def default_weights(fast: bool = False) -> Path | None:
    """Return the folder of TotalSegmentator's weights if they are there; None: they are not.

    Args:
        fast: those of the 3 mm model.
    """
    name = "totalsegmentator-fast" if fast else "totalsegmentator"
    return totalsegmentator_weights() if is_pulled(CATALOGUE[name]) else None


def read_segmenter(
    folder: Path, fast: bool = False, order: int = ORDER, dtype: Dtype = "float32"
) -> TotalSegmenter:
    """Make the segmenter of a folder of weights, which are read when they are first needed.

    Args:
        folder: of one nnU-Net model (with `plans.json`) whose labels have TotalSegmentator's names,
            run as nnU-Net runs it; or of TotalSegmentator's weights, of which `total` is run as
            TotalSegmentator runs it.
        fast: use TotalSegmentator's 3 mm model.
        order: of the spline that resamples for TotalSegmentator's models.
        dtype: of the networks' computation.

    Raises:
        InputError: there are no such weights, or their labels are not those of `total`.
    """
    if not folder.is_dir():
        hint = "check the path (`tumorchain weights pull totalsegmentator` fetches them)"
        raise InputError(folder, "--weights", "no such folder", "a folder of weights", hint)
    if (folder / PLANS).is_file():
        if fast:
            expected = "TotalSegmentator's folder of weights"
            raise InputError(folder, "--fast", "one model", expected, "leave out --fast")
        model = _model(folder, dtype)
        return TotalSegmenter(model.name, (model,))
    numbers, spacing = ([FAST_MODEL], FAST_SPACING_MM) if fast else ([*TOTAL_MODELS], SPACING_MM)
    models = tuple(_total_model(folder, number, dtype) for number in numbers)
    name = f"TotalSegmentator's weights of `total`, {spacing:g} mm"
    return TotalSegmenter(name, models, spacing, order)


def _total_model(home: Path, number: int, dtype: Dtype) -> OrganModel:
    pattern = f"Dataset{number}_*/*__nnUNetPlans__3d_fullres/{PLANS}"
    found = sorted(path.parent for path in home.glob(pattern))
    if len(found) != 1:
        name = "totalsegmentator-fast" if number == FAST_MODEL else "totalsegmentator"
        hint = f"name TotalSegmentator's folder (`tumorchain weights pull {name}` fills it)"
        one = f"one (or {PLANS}, of one model of nnU-Net)"
        raise InputError(home, f"Dataset{number}_*", f"{len(found)} models", one, hint)
    model = _model(found[0], dtype, folds=(0,), step=STEP, mirror=False)
    expected = TOTAL_MODELS.get(number, range(1, len(TOTALSEGMENTATOR)))
    if model.ids != (0, *expected):
        names = f"{TOTALSEGMENTATOR[expected[0]]} to {TOTALSEGMENTATOR[expected[-1]]}"
        hint = "take the weights of TotalSegmentator v2"
        raise InputError(found[0] / DATASET, "labels", "others", names, hint)
    return model


def _model(
    folder: Path, dtype: Dtype, folds: tuple[int, ...] | None = None, **how: Any
) -> OrganModel:
    plan = read_plan(folder)
    names = sorted(plan.labels, key=lambda name: plan.labels[name])
    for name in names:
        if name not in TOTALSEGMENTATOR:
            hint = "take a model of that (not of v1, v3 or another task)"
            expected = "names of TotalSegmentator v2 `total`"
            raise InputError(folder / DATASET, "labels", repr(name), expected, hint)
    network = _LazyModel(folder, folds, dtype=dtype, **how)
    ids = tuple(TOTALSEGMENTATOR.index(name) for name in names)
    # The name is part of the cache key: another precision gives other masks.
    name = plan.name if dtype == "float32" else f"{plan.name} in {dtype}"
    return OrganModel(name, ids, network.predict, network.identity)


class _LazyModel:
    """A model folder, read when it is first needed; `how` are arguments of `Predictor`."""

    def __init__(self, folder: Path, folds: tuple[int, ...] | None, **how: Any):
        self._folder, self._folds, self._how = folder, folds, how

    @cached_property
    def _model(self) -> SegmentationModel:
        return load_segmentation_model(self._folder, self._folds)

    @cached_property
    def _predictor(self) -> Callable[[Volume], Volume]:
        return Predictor(self._model, **self._how)

    def predict(self, scan: Volume) -> Volume:
        return self._predictor(scan)

    def identity(self) -> str:
        return self._model.sha256
