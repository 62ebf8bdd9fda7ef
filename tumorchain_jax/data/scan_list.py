"""What a data set is to be made of: scans with their label maps, and records that ask about them.

A list is JSON lines, one a scan; paths start from the list's own folder:

    {"scan": "a-17", "ct": "a-17/ct.nii.gz", "labels": "a-17/labels.nii.gz",
     "lesions": "a-17/lesions.nii.gz", "abnormal": {"liver": true, "spleen": false}}

A folder may stand for a list, with a folder in it for each scan, whose name is the scan's:

    DIR/NAME/ct.nii.gz         HU, or the folder `ct` of a DICOM series
    DIR/NAME/labels.nii.gz     TotalSegmentator v2 `total` ids on the CT's grid
    DIR/NAME/lesions.nii.gz    n in the n-th lesion; may be left out, as `abnormal` may

Records are JSON lines as `data/schema.py` has them, with a scan's name in place of its number.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record

_FIELDS = {"scan", "ct", "labels", "lesions", "abnormal"}
_MEND_LINE = "fix the line; see the README's `prepare`"


@dataclass(frozen=True)
class ScanFiles:
    """The files of one scan.

    Attributes:
        name: what the records call it.
        ct: a NIfTI file, or the folder of a DICOM series.
        labels: TotalSegmentator v2 `total` ids, NIfTI.
        lesions: n in the n-th lesion, NIfTI; None where no lesion is known.
        abnormal: merged label -> whether the organ is abnormal; organs left out are unknown.
    """

    name: str
    ct: Path
    labels: Path
    lesions: Path | None = None
    abnormal: Mapping[int, bool] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Another one when a file's size or time of change is, or what the list says of the scan;
        the same one when all files move together.
        """
        paths = [self.ct, self.labels, *([self.lesions] if self.lesions else [])]
        facts = [self.name, sorted(self.abnormal.items()), [_stamps(path) for path in paths]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _stamps(path: Path) -> list[tuple[str, int, int]] | None:
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(file.name, file.stat()) for file in files]
    except OSError:  # what is missing now may be there the next time
        return None
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def read_scans(source: Path) -> list[ScanFiles]:
    """The scans of a list or a folder, by name. Whether their files are sound is seen later.

    Raises:
        InputError: there are none, a line of the list is malformed, or two scans have one name.
    """
    if source.is_dir():
        folders = [path for path in source.absolute().iterdir() if path.is_dir()]
        scans = [_in_folder(path) for path in folders if not path.name.startswith(".")]
    else:
        root = source.absolute().parent
        scans = [_from_line(where, values, root) for where, _, values in _lines(source)]
    if not scans:
        expected = "a list of scans, or a folder with a folder for each"
        raise InputError(source, "scans", "none", expected, "check the path")
    scans.sort(key=lambda scan: scan.name)
    for one, other in pairwise(scans):
        if one.name == other.name:
            expected = "a name of its own for each scan"
            raise InputError(source, "scan", f"{one.name} twice", expected, "rename one")
    return scans


def _in_folder(folder: Path) -> ScanFiles:
    series, lesions = folder / "ct", folder / "lesions.nii.gz"
    return ScanFiles(
        folder.name,
        series if series.is_dir() else folder / "ct.nii.gz",
        folder / "labels.nii.gz",
        lesions if lesions.exists() else None,
    )


def _from_line(where: str, values: dict[str, Any], root: Path) -> ScanFiles:
    for unknown in sorted(set(values) - _FIELDS):
        raise InputError(where, unknown, "a field", f"of {', '.join(sorted(_FIELDS))}", _MEND_LINE)
    texts = {name: values.get(name) for name in ("scan", "ct", "labels")}
    texts |= {"lesions": values["lesions"]} if "lesions" in values else {}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise InputError(where, name, json.dumps(text), "a text", _MEND_LINE)
    abnormal = values.get("abnormal", {})
    if not isinstance(abnormal, dict) or {type(told) for told in abnormal.values()} - {bool}:
        found, expected = json.dumps(abnormal), 'true or false by organ, as {"liver": true}'
        raise InputError(where, "abnormal", found, expected, _MEND_LINE)
    for organ in abnormal:
        if organ not in ORGANS[1:]:
            expected = "an organ that `tumorchain info` lists"
            raise InputError(where, "abnormal", organ, expected, _MEND_LINE)
    return ScanFiles(
        values["scan"],
        root / values["ct"],
        root / values["labels"],
        root / values["lesions"] if "lesions" in values else None,
        {ORGANS.index(organ): told for organ, told in abnormal.items()},
    )


class RecordFile:
    """Records by scan. They stay on disk: in memory is where each line begins.

    Attributes:
        path: the JSON lines.
        patients: name of a scan -> its patient's, of the scans that have records.

    Raises:
        InputError: a record is malformed, of a scan that is not there, or of another patient than
            its scan's other records.
    """

    def __init__(self, path: Path, scans: Collection[str]):
        self.path = path
        self.patients: dict[str, str] = {}
        self._places: dict[str, list[tuple[str, int]]] = {}
        for where, offset, values in _lines(path):
            name = values.get("scan")
            if not isinstance(name, str) or name not in scans:
                expected = f"the name of one of the {len(scans)} scans"
                hint = "fix the record, or add the scan"
                raise InputError(where, "scan", json.dumps(name), expected, hint)
            patient = _record(where, values, 0).patient
            if self.patients.setdefault(name, patient) != patient:
                expected = f"{self.patients[name]}, as in the records of {name} before"
                raise InputError(where, "patient", patient, expected, "fix the record")
            self._places.setdefault(name, []).append((where, offset))

    def of_scan(self, name: str, number: int) -> Iterator[tuple[str, Record]]:
        """A scan's records with the number it has now, each with its place in the file."""
        with self.path.open("rb") as file:
            for where, offset in self._places.get(name, ()):
                file.seek(offset)
                yield where, _record(where, json.loads(file.readline()), number)

    def count(self, name: str) -> int:
        """How many records a scan has."""
        return len(self._places.get(name, ()))


def _record(where: str, values: dict[str, Any], number: int) -> Record:
    return Record.from_json(json.dumps(values | {"scan": number}), where)


def _lines(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Of each JSON object its place in words, the byte at which it begins, and itself."""
    try:
        file = path.open("rb")
    except OSError as error:
        found = f"{error.strerror}"
        raise InputError(path, "path", found, "a file of JSON lines", "check the path") from error
    offset = 0
    with file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"{path}:{number}", offset, _object(f"{path}:{number}", line)
            offset += len(line)


def _object(where: str, line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError(f"{type(values).__name__}")
    except ValueError as error:
        raise InputError(where, "JSON", repr(str(error)), "an object", "fix the line") from error
    return values
