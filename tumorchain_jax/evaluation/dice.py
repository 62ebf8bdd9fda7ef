"""Dice of a segmenter's organ masks on digital patients and real CTs (Dice, Ecology 1945)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer
from tqdm import tqdm

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bootstrap import RESAMPLES, SEED
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume


@dataclass(frozen=True)
class OrganDice:
    """Dice of one organ over patients.

    Attributes:
        n: patients who have the organ.
        mean: of their Dice, 0 to 1.
        ci95: of the mean, by bootstrap over these patients.
    """

    n: int
    mean: float
    ci95: tuple[float, float]


def organ_dice(
    found: Integer[np.ndarray, "I J K"], truth: Integer[np.ndarray, "P Q R"]
) -> dict[int, float]:
    """Compute the Dice of each id of `truth` but 0.

    Raises:
        InputError: the grids differ.
    """
    if found.shape != truth.shape:
        raise InputError(
            "label map", "grid", str(found.shape), f"the truth's {truth.shape}",
            "compare maps of one scan",
        )  # fmt: skip
    ids = int(max(found.max(), truth.max())) + 1
    both = np.bincount(truth[found == truth], minlength=ids)
    sizes = np.bincount(truth.ravel(), minlength=ids)
    either = sizes + np.bincount(found.ravel(), minlength=ids)
    return {
        id_: float(2 * both[id_] / either[id_]) for id_ in np.flatnonzero(sizes).tolist() if id_
    }


def phantom_dice(
    segment: Callable[[Volume], Volume],
    seeds: Iterable[int],
    settings: PatientSettings = SIMPLE_PATIENTS,
) -> list[dict[str, float]]:
    """Compute the Dice of each organ of digital patients, by TotalSegmentator's names.

    Args:
        segment: a CT -> TotalSegmentator v2 `total` ids on its grid.
    """
    rows = []
    for seed in tqdm(seeds, "patients", disable=None):
        patient = make_patient(seed, settings)
        rows.append(_by_name(organ_dice(segment(patient.ct).voxels, patient.labels.voxels)))
    return rows


def scan_dice(
    segment: Callable[[Volume], Volume],
    scans: Iterable[tuple[Path, Path]],
    relabel: Mapping[int, int] | None = None,
) -> list[dict[str, float]]:
    """Compute the Dice of each organ of real CTs, by TotalSegmentator's names.

    Args:
        segment: a CT -> TotalSegmentator v2 `total` ids on its grid.
        scans: each a CT and a label map of its organs.
        relabel: label of the map -> the id that it means, the others are left out; None: the labels
            are ids.

    Raises:
        InputError: a file cannot be read, or the map is not on the CT's grid.
    """
    rows = []
    for ct_path, labels_path in scans:
        ct = read_ct(ct_path)
        truth = read_labels(labels_path, ct).voxels
        if relabel is not None:
            table = np.zeros(len(TOTALSEGMENTATOR), np.uint8)
            table[list(relabel)] = list(relabel.values())
            truth = table[truth]
        rows.append(_by_name(organ_dice(segment(ct).voxels, truth)))
    return rows


def _by_name(dice: Mapping[int, float]) -> dict[str, float]:
    return {TOTALSEGMENTATOR[id_]: value for id_, value in dice.items()}


def summarise(
    patients: Sequence[Mapping[str, float]], organs: Collection[str] | None = None
) -> dict[str, OrganDice]:
    """Average each organ's Dice over the patients who have it.

    Args:
        organs: those that the segmenter knows, others are left out; None: all.

    Raises:
        InputError: no patient has any of them.
    """
    found = {name for patient in patients for name in patient}
    names = _in_order(found if organs is None else found.intersection(organs))
    if not names:
        raise InputError(
            "label maps", "organs", ", ".join(_in_order(found)) or "none",
            "an organ that the segmenter knows", "check the labels, or name them by --relabel",
        )  # fmt: skip
    return {
        name: _summarise(np.array([patient[name] for patient in patients if name in patient]))
        for name in names
    }


def dice_text(organs: Mapping[str, OrganDice]) -> str:
    """Format what `summarise` returns as a table."""
    lines = [f"{'organ':<26}{'Dice':>7}{'95 % from':>11}{'to':>7}{'n':>6}"]
    for name, dice in organs.items():
        low, high = dice.ci95
        lines.append(f"{name:<26}{dice.mean:>7.3f}{low:>11.3f}{high:>7.3f}{dice.n:>6}")
    return "\n".join(lines)


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=TOTALSEGMENTATOR.index)


def _summarise(values: Float[np.ndarray, " n"]) -> OrganDice:
    drawn = np.random.default_rng(SEED).choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
    return OrganDice(len(values), float(values.mean()), (low, high))
