"""Find the scans of a command line, pair them with masks, and name their outputs."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError

NIFTI, ZIP = (".nii", ".nii.gz"), ".zip"
# In the layout of a data set (`tumorchain prepare`), a folder is one scan: NAME/ct.nii.gz or the
# DICOM folder NAME/ct, with NAME/labels.nii.gz beside it.
CT_FILES, CT_FOLDER, LABELS = ("ct.nii.gz", "ct.nii"), "ct", "labels"


@dataclass(frozen=True)
class CasePaths:
    """One scan of a command line.

    Attributes:
        ct: NIfTI file or DICOM folder.
        name: its path without ending, relative to the folder of scans it was found in.
        output: folder for its report.
    """

    ct: Path
    name: str
    mask: Path | None
    output: Path


@dataclass(frozen=True)
class _Scan:
    """A scan that was found.

    Attributes:
        stem: absolute path that it is named after, without ending.
        name: relative to the input folder.
    """

    path: Path
    stem: Path
    name: str


def list_cases(inputs: Sequence[Path], masks: Sequence[Path], output: Path) -> list[CasePaths]:
    """Pair scans with masks and outputs.

    An input is a NIfTI file, the folder or zip archive of a DICOM series, or a folder of scans,
    which is searched with all its folders: every NIfTI file and zip archive in it is a scan, and so
    is every folder that holds no such file and no folder (a DICOM series). A folder with
    `ct.nii.gz` (or a DICOM folder `ct`) is one scan, named after the folder. The report of a single
    scan goes to `output` itself, those of a folder of scans or of several inputs to
    `output / NAME`.

    Args:
        masks: as many label maps as scans, in their order; or one folder with NAME.nii.gz, or
            NAME/labels.nii.gz, of each scan. A scan without one there has no mask.

    Raises:
        InputError: an input is missing; slices lie beside other scans; masks and scans do not pair
            up; two scans have one name; `output` lies inside the inputs, where the next run would
            find it.
    """
    for folder in (*inputs, *masks):
        _check_outside(output, folder)
    scans = [scan for path in inputs for scan in _scans_in(path)]
    several = len(scans) > 1 or any(_is_folder_of_scans(path) for path in inputs)
    names = _names(scans)
    paired = _masks(scans, names, masks)
    return [
        CasePaths(scan.path, name, mask, output / name if several else output)
        for scan, name, mask in zip(scans, names, paired, strict=True)
    ]


def scan_name(path: Path) -> str:
    """Return the name of a scan's file or folder, without its ending."""
    return _stem(path.resolve().name)


def _stem(name: str) -> str:
    for ending in (".nii.gz", ".nii", ZIP):
        name = name.removesuffix(ending)
    return name


def _check_outside(output: Path, folder: Path) -> None:
    if folder.is_dir() and output.resolve().is_relative_to(folder.resolve()):
        found = f"a place inside {folder}, which is read"
        hint = "name another: the next run would take the output for scans"
        raise InputError(output, "-o", found, "a place outside the inputs", hint)


def _scans_in(path: Path) -> list[_Scan]:
    if not path.exists():
        raise InputError(path, "path", "nothing", "a CT file or folder", "check the path")
    if not _is_folder_of_scans(path):
        ct = _only_ct(path) or path
        return [_Scan(ct, path.resolve().with_name(scan_name(path)), scan_name(path))]
    root = path.resolve()
    return [
        _Scan(ct, stem, stem.relative_to(root).as_posix()) for ct, stem in _search(root, path, ())
    ]


def _search(folder: Path, shown: Path, above: tuple[Path, ...]) -> list[tuple[Path, Path]]:
    """Find (scan, path it is named after) in a folder and all its folders.

    Args:
        folder: absolute.
        shown: the same folder as the user wrote it.
        above: the folders that this one was found in, to end where a link leads back.
    """
    found: list[tuple[Path, Path]] = []
    for path in sorted(shown.iterdir()):
        here = folder / path.name
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if path.resolve() in (*above, folder.resolve()):
                continue
            if _is_folder_of_scans(path):
                found += _search(here, path, (*above, folder.resolve()))
            else:
                found.append((_only_ct(path) or path, here))
        elif path.name.endswith((*NIFTI, ZIP)):
            found.append((path, here.with_name(_stem(path.name))))
        elif path.suffix.lower() == ".dcm":
            found_here = "DICOM slices beside other scans or folders"
            hint = "move the series into a folder of its own"
            raise InputError(shown, "folder", found_here, "one or the other", hint)
    return found


def _only_ct(path: Path) -> Path | None:
    """The scan of a folder that is one scan in the layout of a data set."""
    for name in CT_FILES:
        if (path / name).is_file():
            return path / name
    return path / CT_FOLDER if (path / CT_FOLDER).is_dir() else None


def _is_folder_of_scans(path: Path) -> bool:
    if not path.is_dir() or _only_ct(path):
        return False
    inside = [each for each in path.iterdir() if not each.name.startswith(".")]
    zips = [each for each in inside if each.name.endswith(ZIP)]
    if zips and len(zips) == len(inside):
        return True
    return any(each.is_dir() or each.name.endswith(NIFTI) for each in inside)


def _names(scans: Sequence[_Scan]) -> list[str]:
    """Names that differ: where two scans share one, their folders' names are put before it."""
    counts = Counter(scan.name for scan in scans)
    shared = [scan.stem for scan in scans if counts[scan.name] > 1]
    if len(set(shared)) < len(shared):
        twice = next(stem for stem in shared if shared.count(stem) > 1)
        raise InputError("-i", "names", f"{twice.name} twice", "each scan once", "leave one out")
    common = Path(os.path.commonpath([stem.parent for stem in shared])) if shared else Path()
    names = [
        scan.stem.relative_to(common).as_posix() if counts[scan.name] > 1 else scan.name
        for scan in scans
    ]
    for name in names:
        clash = next((str(up) for up in PurePosixPath(name).parents if str(up) in names), None)
        if clash or names.count(name) > 1:
            found = f"a scan {name} and a scan {clash or name}"
            expected = "names that can be folders side by side"
            raise InputError("-i", "names", found, expected, "rename one")
    return names


def _masks(
    scans: Sequence[_Scan], names: Sequence[str], masks: Sequence[Path]
) -> list[Path | None]:
    if not masks:
        return [None] * len(scans)
    if len(masks) == 1 and masks[0].is_dir():
        return _masks_in(masks[0], names)
    if len(masks) != len(scans):
        raise InputError(
            "-m",
            "masks",
            str(len(masks)),
            f"{len(scans)}, one for each scan, or a folder",
            "give as many masks as scans, or a folder with files of the scans' names",
        )
    return list(masks)


def _masks_in(folder: Path, names: Sequence[str]) -> list[Path | None]:
    found = [_mask_of(folder, name) for name in names]
    if not any(found):
        expected = f"{names[0]}.nii.gz"
        if len(names) > 1:
            expected += f", or that of another of the {len(names)} scans"
        hint = "name the mask, or leave out -m"
        if any(_is_folder_of_organs(path) for path in (folder, *folder.iterdir())):
            hint = "it has one file per organ: make one label map per scan with `segment -ml`"
        raise InputError(folder, "-m", "no mask", expected, hint)
    return found


def _mask_of(folder: Path, name: str) -> Path | None:
    stems = (folder / name, folder / name / LABELS)
    files = (stem.with_name(stem.name + ending) for stem in stems for ending in NIFTI)
    return next((file for file in files if file.is_file()), None)


def _is_folder_of_organs(path: Path) -> bool:
    """Whether `segment` wrote it without `-ml`."""
    return path.is_dir() and any(scan_name(inside) in TOTALSEGMENTATOR for inside in path.iterdir())
