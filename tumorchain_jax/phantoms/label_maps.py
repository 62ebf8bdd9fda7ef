"""Read folders of label maps: TotalSegmentator v2 `total` ids, and others from 200 on.

`labels.json`, in the folder or the one above it, says in words what the values from 200 on are;
without it they are all soft tissue of the body that is no organ.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from nibabel.orientations import axcodes2ornt
from scipy import ndimage

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.nifti import read_nifti
from tumorchain_jax.scan.orientation import reorient

VOXEL_MM = 2.0  # of the grid that maps are read onto
# Values of a map that was read: labels of organs up to 117, and these.
FIRST_OTHER = 200
BODY, OTHER_SOFT, OTHER_BONE = 200, 201, 202
MOST_OBLIQUE = 0.03  # sine of the angle between an axis of the grid and one of the patient
_HINT = "give label maps with TotalSegmentator v2 `total` ids"


@dataclass(frozen=True)
class LabelMap:
    """A label map on a RAS grid of VOXEL_MM.

    Attributes:
        name: of the file.
        labels: ids 1 to 117, BODY, OTHER_SOFT, OTHER_BONE, and 0 outside of what is labelled.
        female: None where it is not known.
    """

    name: str
    labels: UInt8[np.ndarray, "X Y Z"]
    female: bool | None


def read_label_maps(folder: Path) -> tuple[LabelMap, ...]:
    """Read all label maps `*.nii.gz` of a folder, in the order of their names.

    Raises:
        InputError: there is no map; or one is no label map of whole numbers, is oblique, or has
            ids that are unknown, of TotalSegmentator v1, or of a mirrored patient.
    """
    if not folder.is_dir():
        raise InputError(folder, "folder", "no folder", "a folder of label maps", "check the path")
    paths = sorted(folder.glob("*.nii.gz"))
    if not paths:
        found = "no *.nii.gz"
        if below := sorted(path.parent.name for path in folder.glob("*/*.nii.gz")):
            found += f", but some in {below[0]}/"
        raise InputError(folder, "folder", found, "label maps *.nii.gz", "name their own folder")
    names, cases = _names(folder), _cases(folder)
    return tuple(_read(path, names, cases.get(path.name)) for path in paths)


def fingerprint(folder: Path) -> str:
    """Return a sha256 of the label maps of a folder and of the files that describe them."""
    described = (folder / "labels.json", folder.parent / "labels.json", folder / "cases.json")
    digest = hashlib.sha256()
    for path in (*sorted(folder.glob("*.nii.gz")), *filter(Path.is_file, described)):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _read(path: Path, names: dict[int, str], female: bool | None) -> LabelMap:
    volume = reorient(read_nifti(path), axcodes2ornt(tuple("RAS")))
    spacing = np.array(volume.spacing)
    if np.abs(volume.affine[:3, :3] / spacing - np.eye(3)).max() > MOST_OBLIQUE:
        raise InputError(
            path,
            "affine",
            "an oblique grid",
            "axes along the patient's",
            "resample it to such axes",
        )
    values = np.unique(volume.voxels)
    top = len(TOTALSEGMENTATOR) - 1
    known = (values == np.rint(values)) & (
        ((values >= 0) & (values <= top)) | ((values >= FIRST_OTHER) & (values <= 255))
    )
    if not known.all():
        strange = ", ".join(f"{value:g}" for value in values[~known][:4])
        expected = f"0 to {top}, or {FIRST_OTHER} to 255"
        raise InputError(path, "labels", strange, expected, _HINT)
    if not ((values > 0) & (values <= top)).any():
        raise InputError(path, "labels", "no organ", f"ids from 1 to {top}", _HINT)
    others = {int(v) for v in values if v >= FIRST_OTHER}
    if names and (unknown := sorted(others - set(names))):
        expected = "values that labels.json names"
        raise InputError(path, "labels", f"{unknown[0]}", expected, "name it in labels.json")
    table = np.zeros(256, np.uint8)
    table[: top + 1] = np.arange(top + 1)
    for value in others:
        table[value] = _meaning(names.get(value, "body"))
    labels = table[_resample(volume.voxels, spacing).astype(np.uint8)]
    _check_places(path, labels)
    if female is None and TOTALSEGMENTATOR.index("prostate") in values:
        female = False
    return LabelMap(path.name, labels, female)


def _resample(voxels: np.ndarray, spacing: Float[np.ndarray, "3"]) -> np.ndarray:
    """Resample to VOXEL_MM by the nearest voxel."""
    size = np.maximum(1, np.rint(np.array(voxels.shape) * spacing / VOXEL_MM).astype(int))
    nearest = [
        np.rint((np.arange(n) + 0.5) * VOXEL_MM / s - 0.5).astype(int).clip(0, count - 1)
        for n, s, count in zip(size, spacing, voxels.shape, strict=True)
    ]
    return voxels[np.ix_(*nearest)]


def _meaning(name: str) -> int:
    words = name.lower()
    if words.startswith("body"):
        return BODY
    return OTHER_BONE if "bone" in words else OTHER_SOFT


def _check_places(path: Path, labels: UInt8[np.ndarray, "X Y Z"]) -> None:
    """Refuse ids of TotalSegmentator v1, and a patient mirrored or upside down."""
    boxes = ndimage.find_objects(labels, 117)

    def middle(label: int, axis: int) -> float | None:
        box = boxes[label - 1]
        return None if box is None else (box[axis].start + box[axis].stop) / 2

    def before(first: int, second: int, axis: int) -> bool:
        a, b = middle(first, axis), middle(second, axis)
        return a is not None and b is not None and a < b

    # In v1 the ids 18 to 22 are L5 to L1, 7 the aorta and 10 the pancreas: of v2, the bladder lies
    # below the duodenum, and the upper lobe of the left lung above the liver.
    if before(19, 21, 2) or before(10, 5, 2):
        found = "ids in the places of TotalSegmentator v1"
        raise InputError(path, "labels", found, "ids of v2 `total`", "segment it again with v2")
    if before(5, 1, 0):
        found = "label 5 (liver) left of label 1 (spleen)"
        raise InputError(path, "labels", found, "the liver on the right", "check its orientation")
    if before(5, 77, 2) or before(5, 21, 2) or before(5, 25, 2):
        found = "label 5 (liver) below the pelvis"
        raise InputError(path, "labels", found, "the liver above it", "check its orientation")


def _names(folder: Path) -> dict[int, str]:
    """Read what values mean, and check that the ids up to 117 mean what they do here."""
    for path in (folder / "labels.json", folder.parent / "labels.json"):
        if path.is_file():
            break
    else:
        return {}
    try:
        names = {int(value): str(name) for value, name in json.loads(path.read_bytes()).items()}
    except (ValueError, AttributeError) as error:
        expected = "an object of names by value"
        raise InputError(path, "labels.json", f"{error}", expected, "mend or remove it") from None
    for value, name in names.items():
        if 0 < value < len(TOTALSEGMENTATOR) and name != TOTALSEGMENTATOR[value]:
            expected = f"{TOTALSEGMENTATOR[value]} (TotalSegmentator v2)"
            raise InputError(path, f"label {value}", name, expected, _HINT)
    return names


def _cases(folder: Path) -> dict[str, bool]:
    """Read from cases.json, where there is one, which maps are of women (true) and men (false)."""
    path = folder / "cases.json"
    if not path.is_file():
        return {}
    try:
        cases = json.loads(path.read_bytes()).get("cases", {})
        sexes = {name: case.get("sex") for name, case in cases.items()}
    except (ValueError, AttributeError) as error:
        expected = 'an object with "cases"'
        raise InputError(path, "cases.json", f"{error}", expected, "mend or remove it") from None
    return {name: sex == "female" for name, sex in sexes.items() if sex in ("female", "male")}
