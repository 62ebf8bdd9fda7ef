"""Compare the reports of a scan and of an earlier one of the same patient."""

from collections.abc import Iterable

import numpy as np

from tumorchain_jax.anatomy.organs import ORGANS, merge_labels
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.report.comparison import Comparison, OrganChange
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.scan.registration import Registration, register, resample_onto
from tumorchain_jax.scan.volume import Volume

LEAST_OVERLAP = 0.5
"""Dice of all organs together below which the registration is doubted."""
FAILED = (
    "the prior does not lie well on the scan: the organs of the two overlap by {:.0%} (Dice). "
    "Compare by eye, and check that both are of one patient"
)
NO_MASKS = "a scan without organ masks has no volumes to compare"
CUT = "organs at the edge of a scan are cut: their volumes are not compared"


def compare_reports(
    pairs: Iterable[tuple[ReportRecord, ReportRecord]],
) -> list[Comparison]:
    """Compare (prior, now) reports of one pair of scans; the scans are registered once.

    Raises:
        InputError: a report does not hold its scan.
    """
    found: Registration | None = None
    made = []
    for prior, now in pairs:
        if prior.ct is None or now.ct is None:
            expected, hint = "a report that holds its scan", "analyze it again"
            raise InputError(now.source, "report", "no scan", expected, hint)
        found = found or register(now.ct, prior.ct)
        made.append(_compare(prior, now, prior.ct, now.ct, found))
    return made


def _compare(
    prior: ReportRecord, now: ReportRecord, before: Volume, after: Volume, found: Registration
) -> Comparison:
    moved = resample_onto(before, after, found.to_prior, fill=-1000.0)
    warnings: tuple[str, ...] = ()
    labels, organs = None, []
    if prior.labels is None or now.labels is None:
        warnings += (NO_MASKS,)
    else:
        labels = resample_onto(prior.labels, after, found.to_prior, fill=0.0)
        overlap = _dice(labels, now.labels.voxels)
        for name in ORGANS[1:]:
            if name not in prior.organs and name not in now.organs:
                continue
            old, new = prior.organs.get(name), now.organs.get(name)
            organs.append(
                OrganChange(
                    name,
                    None if old is None else old.volume_ml,
                    None if new is None else new.volume_ml,
                    any(each is not None and each.cut for each in (old, new)),
                    overlap[ORGANS.index(name)],
                )
            )
        whole = _overlap(labels > 0, now.labels.voxels > 0)
        if whole < LEAST_OVERLAP:
            warnings += (FAILED.format(whole),)
        if any(organ.cut for organ in organs):
            warnings += (CUT,)
    placed = Volume(moved, after.affine, before.source)
    on_scan = None if labels is None else Volume(labels, after.affine, before.source)
    return Comparison(prior, now, found, placed, on_scan, tuple(organs), warnings)


def _dice(prior: np.ndarray, now: np.ndarray) -> list[float]:
    """Dice of each merged label, 0 where neither has it."""
    size = len(ORGANS)
    old, new = merge_labels(prior).ravel(), merge_labels(now).ravel()
    both = np.bincount(old[old == new], minlength=size)
    total = np.bincount(old, minlength=size) + np.bincount(new, minlength=size)
    return (2 * both / np.maximum(total, 1)).tolist()


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else 0.0
