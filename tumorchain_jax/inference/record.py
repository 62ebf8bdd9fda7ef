"""From an answer to a report: the conclusion, the warnings and what produced it."""

import platform
from functools import cache
from importlib.metadata import version

import jax

from tumorchain_jax import __version__
from tumorchain_jax.inference.runner import Answer
from tumorchain_jax.inference.verdict import not_segmented, verdict
from tumorchain_jax.report.conclusion import parse_conclusion
from tumorchain_jax.report.record import View
from tumorchain_jax.report.report import Report
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
        verdict=verdict(answer, checkpoint.measured),
        ct=case.ct,
        labels=case.labels,
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
    warnings += checkpoint.measured.warnings + answer.case.warnings
    if answer.case.masks is None:
        return warnings
    lacking = [f"the {name}" for name in not_segmented(answer.question, answer.case.masks)]
    not_shown = (NOT_SHOWN.format(", ".join(lacking)),) if lacking else ()
    return warnings + answer.case.masks.warnings + not_shown


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that decide a result."""
    packages = ("jax", "jaxlib", "flax", "numpy", "scipy", "nibabel", "pydicom", "transformers")
    own = {"tumorchain_jax": __version__, "python": platform.python_version()}
    return own | {package: version(package) for package in packages}
