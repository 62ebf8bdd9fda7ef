"""`tumorchain calibrate`: ask a checkpoint about digital patients of its own, and fit."""

from pathlib import Path

from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.ask import BATCH_SIZE, ask
from tumorchain_jax.evaluation.calibration import THRESHOLD, fit_calibration
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.evaluation.reliability_plot import reliability_curve
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.weights.calibration import Calibration
from tumorchain_jax.weights.measured import write_calibration

CURVE = "reliability.svg"


def calibrate(
    checkpoint: Path, first_seed: int, count: int, threshold: float = THRESHOLD
) -> Calibration:
    """Fit the confidence of a checkpoint, and write it and its picture into the folder.

    Args:
        first_seed, count: of the digital patients.
        threshold: answers of a lower confidence are withheld.

    Raises:
        InputError: the checkpoint cannot be read or written to; it was trained or evaluated on one
            of the patients; or they are too few.
    """
    analyzer = Analyzer.load(checkpoint, batch_size=BATCH_SIZE)
    seeds = first_seed, count
    analyzer.checkpoint.measured.check_seeds(seeds, "calibration")
    items = ask(analyzer, Phantoms(analyzer, *seeds), text_only=False)
    calibration = fit_calibration(items, seeds, threshold)
    write_calibration(checkpoint, analyzer.checkpoint.sha256, calibration)
    caption = (
        f"expected calibration error {calibration.ece_after[0]:.1f} %, "
        f"before {calibration.ece_before[0]:.1f} %"
    )
    curve = reliability_curve(calibration.bins, f"{count} held-out digital patients", caption)
    write_file(checkpoint / CURVE, curve.encode())
    return calibration
