"""nnU-Net's model folders <-> ours (see `segmentation/model_folder.py`)."""

from pathlib import Path
from typing import Any

import numpy as np

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


def is_segmentation(folder: Path) -> bool:
    """Whether a folder is a model that segments, of nnU-Net or ours."""
    return (folder / PLANS).is_file()


def import_segmentation(source: Path, output: Path) -> int:
    """nnU-Net's folder -> ours.

    Returns:
        how many tensors there are now.

    Raises:
        InputError: it cannot be read (see `load_segmentation_model`); the output is there.
    """
    model = load_segmentation_model(source)
    save_segmentation_model(model, output)
    return len(_by_key(model))


def export_segmentation(source: Path, output: Path) -> int:
    """The inverse of `import_segmentation`, with the same returns and refusals."""
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


def inspect_segmentation(source: Path) -> dict[str, Any]:
    """What an import would make of the first fold, as plain values.

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
