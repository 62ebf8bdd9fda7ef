"""The scans that a data set is made from, with their label maps.

A list is JSON lines, one a scan; paths start from the list's own folder:

    {"scan": "a-17", "ct": "a-17/ct.nii.gz", "labels": "a-17/labels.nii.gz",
     "lesions": "a-17/lesions.nii.gz", "abnormal": {"liver": true, "spleen": false}}

A folder may stand for a list, with a folder in it for each scan, at any depth; a scan's name is
its path from there:

    DIR/NAME/ct.nii.gz         HU, or the folder `ct` of a DICOM series
    DIR/NAME/labels.nii.gz     TotalSegmentator v2 `total` ids on the CT's grid
    DIR/NAME/lesions.nii.gz    n in the n-th lesion; may be left out, as `abnormal` may
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines

SERIES, CT, LABELS, LESIONS = "ct", "ct.nii.gz", "labels.nii.gz", "lesions.nii.gz"
"""What a scan's folder holds."""


@dataclass(frozen=True)
class ScanFiles:
    """The files of one scan.

    Attributes:
        name: what the records call it.
        ct: a NIfTI file, the folder of a DICOM series, or a zip archive of one.
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
        """Hash the sizes and times of change of the files, and what the list says of the scan.

        It stays the same when all files move together.
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
    """Read a list of scans or a folder of them, sorted by name; no scan is opened yet.

    Raises:
        InputError: there are none, a line of the list is malformed, or two scans have one name or
            one label map.
    """
    if source.is_dir():
        folders = _scan_folders(source.absolute(), ())
        root = source.absolute()
        scans = [_in_folder(path, path.relative_to(root).as_posix()) for path in folders]
    else:
        root = source.absolute().parent
        scans = [_from_line(LineFields(where, each), root) for where, _, each in read_lines(source)]
    if not scans:
        expected = "a list of scans, or a folder with a folder for each"
        raise InputError(source, "scans", "none", expected, "check the path")
    scans.sort(key=lambda scan: scan.name)
    names: set[str] = set()
    labels: dict[Path, str] = {}
    for scan in scans:
        if scan.name in names:
            expected = "a name of its own for each scan"
            raise InputError(source, "scan", f"{scan.name} twice", expected, "rename one")
        if (other := labels.setdefault(scan.labels, scan.name)) != scan.name:
            found, hint = f"{scan.labels} of {other} for {scan.name} too", "give each scan its own"
            raise InputError(source, "labels", found, "a label map of its own", hint)
        names.add(scan.name)
    return scans


def _scan_folders(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the folders of scans; one without a scan's files is searched if it holds folders."""
    if _holds_scan(folder) and not above:
        expected, hint = "a folder with a folder for each scan", "give the folder above it"
        raise InputError(folder, "scans", "the files of one scan", expected, hint)
    here = folder.resolve()
    if here in above:  # a link that leads back
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_dir():
            continue
        if _holds_scan(path) or not any(each.is_dir() for each in path.iterdir()):
            yield path
        else:
            yield from _scan_folders(path, (*above, here))


def _holds_scan(folder: Path) -> bool:
    return any((folder / name).exists() for name in (SERIES, CT, LABELS, LESIONS))


def _in_folder(folder: Path, name: str) -> ScanFiles:
    series, lesions = folder / SERIES, folder / LESIONS
    return ScanFiles(
        name,
        series if series.is_dir() else folder / CT,
        folder / LABELS,
        lesions if lesions.exists() else None,
    )


def _from_line(fields: LineFields, root: Path) -> ScanFiles:
    fields.check_known({"scan", "ct", "labels", "lesions", "abnormal"})
    abnormal = fields.values.get("abnormal", {})
    if not isinstance(abnormal, dict) or {type(value) for value in abnormal.values()} - {bool}:
        fields.refuse("abnormal", 'true or false by organ, as {"liver": true}')
    for organ in abnormal:
        if organ not in ORGANS[1:]:
            fields.refuse("abnormal", "organs that `tumorchain info` lists")
    return ScanFiles(
        fields.text("scan", filled=True),
        root / fields.path("ct"),
        root / fields.path("labels"),
        root / fields.path("lesions") if "lesions" in fields.values else None,
        {ORGANS.index(organ): value for organ, value in abnormal.items()},
    )
