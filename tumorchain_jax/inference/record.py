"""From an answer to a report: the conclusion, the warnings and what produced it."""

import platform
from functools import cache
from importlib.metadata import version

import jax

from tumorchain_jax import __version__
from tumorchain_jax.anatomy.organs import ORGANS, display_name, labels_named
from tumorchain_jax.inference.runner import Answer
from tumorchain_jax.report.conclusion import parse_conclusion
from tumorchain_jax.report.record import View
from tumorchain_jax.report.report import Report
from tumorchain_jax.segmentation.masks import OrganMasks
from tumorchain_jax.weights.model_folder import ModelFolder

NANO_NAME = "nano, which has seen digital patients alone"
TOY = f"the model is {NANO_NAME}: what it says of a real CT means nothing"
NOT_SHOWN = "the question names {}, which the masks do not show"


def build_report(answer: Answer, checkpoint: ModelFolder) -> Report:
    """Make the report of an answer that this checkpoint gave."""
    case = answer.case
    return Report(
        question=answer.question,
        answer=answer.text,
        conclusion=parse_conclusion(answer.text),
        trace=answer.trace,
        image=case.scan.image,
        transform=case.scan.transform,
        cells=checkpoint.model.roi.grid,
        preprocessing=case.scan.parameters,
        versions=versions(),
        model=checkpoint.name,
        weights_sha256=checkpoint.sha256,
        seed=answer.seed,
        device=jax.devices()[0].device_kind,
        seconds={stage: round(value, 3) for stage, value in answer.seconds.items()},
        warnings=_warnings(answer, checkpoint),
        source=case.source,
        masks=case.masks.origin if case.masks else None,
        organs=case.masks.statistics if case.masks else {},
        crops=_crops(answer, checkpoint),
        forced=case.forced,
    )


def _crops(answer: Answer, checkpoint: ModelFolder) -> dict[int, View]:
    """The crops that the scan has, by their number."""
    crops = answer.case.crops
    if crops is None:
        return {}
    regions = checkpoint.model.roi.regions
    each = enumerate(zip(regions, crops.images, crops.transforms, strict=True))
    return {
        number: View(region, image, transform)
        for number, (region, image, transform) in each
        if transform is not None
    }


def _warnings(answer: Answer, checkpoint: ModelFolder) -> tuple[str, ...]:
    warnings: tuple[str, ...] = (TOY,) if checkpoint.name == NANO_NAME else ()
    warnings += answer.case.warnings
    if answer.case.masks is None:
        return warnings
    return warnings + answer.case.masks.warnings + _not_shown(answer.question, answer.case.masks)


def _not_shown(question: str, masks: OrganMasks) -> tuple[str, ...]:
    """Warn of organs that the question names and the masks, if there are any, lack.

    Where one word names several ("kidneys"), it is enough that one of them is there.
    """
    if masks.origin.kind == "none":
        return ()
    named = [each.labels for each in labels_named(question)]
    lacking = [
        labels for labels in named if not any(ORGANS[label] in masks.statistics for label in labels)
    ]
    names = dict.fromkeys(f"the {display_name(label)}" for labels in lacking for label in labels)
    return (NOT_SHOWN.format(", ".join(names)),) if names else ()


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that decide a result."""
    packages = ("jax", "jaxlib", "flax", "numpy", "scipy", "nibabel", "pydicom", "transformers")
    own = {"tumorchain_jax": __version__, "python": platform.python_version()}
    return own | {package: version(package) for package in packages}
