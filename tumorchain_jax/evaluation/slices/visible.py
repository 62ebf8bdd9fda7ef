"""What a question about a digital patient needs to be seen, and whether it is on a slice sent."""

from collections.abc import Sequence

import numpy as np

from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.slices.policy import AXES, Cut, SlicePolicy
from tumorchain_jax.phantoms.incidental import METASTASIS, NODE
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.records import largest
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

_IN_3D = {
    "count": "a number of lesions in 3D",
    "tumor": "a size or depth in 3D",
    "node": "a number of nodes in 3D",
    "cot_report": "stages in 3D",
}
_OF_THE_LARGEST = ("segment_localization", "shape", "boundary", "density", "others")


def not_answerable(record: Record, policy: SlicePolicy) -> str:
    """Return why slices of this policy cannot answer a question; "" if they can.

    It goes by what is asked, never by the truth.
    """
    if record.subtask == "organ_position" and not policy.shows_heights:
        return "a height in the scan"
    return _IN_3D.get(record.subtask, "")


def is_visible(patient: Patient, record: Record, cuts: Sequence[Cut]) -> bool | None:
    """Tell whether all that a question is about has a voxel on a slice that is sent.

    Returns:
        None where there is no lesion to see: a healthy patient, an organ without one, N0, M0, and
        the position of an organ.
    """
    masks = _asked_about(patient, record)
    if not masks or not all(mask.any() for mask in masks):
        return None
    return all(_on_slices(mask, patient.labels.affine, cuts) for mask in masks)


def _asked_about(patient: Patient, record: Record) -> list[np.ndarray]:
    """Masks of the lesions, each of which the question needs; none without any."""
    lesions, others = patient.lesion_map.voxels, patient.other_map.voxels
    if not patient.lesions or record.subtask == "organ_position":
        return []
    if record.subtask in ("node", "metastasis"):
        return [others == (NODE if record.subtask == "node" else METASTASIS)]
    of_tumour = record.organ in (0, patient.lesions[0].organ)
    if record.subtask == "tumor_position" and not of_tumour:
        # Asked about another organ, which is ill only by a metastasis.
        return [(others == METASTASIS) & (patient.labels.voxels == record.organ)]
    if record.subtask == "count":
        return [lesions == number for number in range(1, len(patient.lesions) + 1)]
    if record.subtask in _OF_THE_LARGEST:
        number = patient.lesions.index(largest(patient.lesions)) + 1
        return [lesions == number]
    return [lesions > 0]


def _on_slices(mask: np.ndarray, affine: np.ndarray, cuts: Sequence[Cut]) -> bool:
    scan = canonical(Volume(mask.astype(np.uint8), affine)).voxels
    return any(np.take(scan, cut.index, AXES[cut.plane]).any() for cut in cuts)
