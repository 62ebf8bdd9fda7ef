"""Conversion of nnU-Net's model folders (see `segmentation/model_folder.py`)."""

from pathlib import Path

import numpy as np

from tumorchain_jax.convert.format import Facts, Format, Options
from tumorchain_jax.convert.importer import describe
from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.segmentation.model_folder import (
    SegmentationModel,
    export_nnunet,
    fold_names,
    load_segmentation_model,
    open_fold,
    save_segmentation_model,
)
from tumorchain_jax.segmentation.plans import PLANS
from tumorchain_jax.weights.matching import match

NO_OPTIONS = Options()


def import_segmentation(source: Path, output: Path, options: Options = NO_OPTIONS) -> int:
    """Convert nnU-Net's folder to ours.

    Returns:
        how many tensors there are now.

    Raises:
        InputError: it cannot be read (see `load_segmentation_model`); the output is there.
    """
    model = load_segmentation_model(source)
    save_segmentation_model(model, output)
    return len(_by_key(model))


def export_segmentation(source: Path, output: Path, options: Options = NO_OPTIONS) -> int:
    """Convert our folder to nnU-Net's; returns and refusals as of `import_segmentation`."""
    model = load_segmentation_model(source)
    export_nnunet(model, output)
    return len(_by_key(model))


def verify_segmentation(source: Path, converted: Path) -> Verdict:
    """Compare two folders, each of either kind: their plans, and parameter by parameter.

    Raises:
        InputError: one cannot be read.
    """
    ours, theirs = load_segmentation_model(converted), load_segmentation_model(source)
    found, expected = _by_key(ours), _by_key(theirs)
    same = {
        key: key in found and np.array_equal(found[key], leaf) for key, leaf in expected.items()
    }
    verdict = Verdict(
        equal=[key for key in expected if same[key]],
        different=[key for key in expected if key in found and not same[key]],
        missing=[key for key in expected if key not in found],
        added=[key for key in found if key not in expected],
        ignored=[],
    )
    (verdict.equal if ours.plan == theirs.plan else verdict.different).append("plan")
    return verdict


def inspect_segmentation(source: Path, options: Options = NO_OPTIONS) -> Facts:
    """Describe what an import makes of the first fold, as plain values.

    Raises:
        InputError: it cannot be read.
    """
    with open_fold(source, fold_names(source)[0]) as fold:
        matched = match(fold.path, fold.family, fold.tensors, None)
        return describe(fold.family, fold.tensors, matched)


def _by_key(model: SegmentationModel) -> dict[str, np.ndarray]:
    return {
        f"fold_{name}/{path}": leaf
        for name, fold in zip(model.names, model.folds, strict=True)
        for path, leaf in flatten(fold).items()
    }


NNUNET = Format(
    name="nnU-Net",
    detect=lambda folder: (folder / PLANS).is_file(),
    inspect=inspect_segmentation,
    to_ours=import_segmentation,
    to_theirs=export_segmentation,
    verify=verify_segmentation,
)
