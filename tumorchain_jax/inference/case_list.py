"""Which scans a command line means, and where each report goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError

NIFTI = (".nii", ".nii.gz")


@dataclass(frozen=True)
class CasePaths:
    """One scan to analyze."""

    ct: Path
    mask: Path | None
    output: Path


def list_cases(inputs: Sequence[Path], masks: Sequence[Path], output: Path) -> list[CasePaths]:
    """Pair scans with masks and outputs.

    One scan's report is `output` itself; of several, each has a folder in it, named after its scan.
    A folder given as input is a folder of scans if it holds NIfTI files or folders, else it is one
    DICOM series. Masks are as many as the scans, in their order, or a folder with files of the same
    names; in a folder, a scan without a file has no mask, and is segmented.

    Raises:
        InputError: nothing there, masks and scans do not pair up, a folder of masks has none of any
            scan, or two scans have one name.
    """
    scans = [scan for path in inputs for scan in _scans_in(path)]
    several = len(scans) > 1 or any(_is_folder_of_scans(path) for path in inputs)
    names = [scan_name(scan) for scan in scans]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError("-i", "names", f"two scans named {twice}", "one of each", "rename one")
    pairs = zip(scans, names, _masks(scans, masks), strict=True)
    return [CasePaths(ct, mask, output / name if several else output) for ct, name, mask in pairs]


def _scans_in(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(path, "path", "nothing", "a CT file or folder", "check the path")
    if not _is_folder_of_scans(path):
        return [path]
    return sorted(p for p in path.iterdir() if p.is_dir() or p.name.endswith(NIFTI))


def _is_folder_of_scans(path: Path) -> bool:
    return path.is_dir() and any(p.is_dir() or p.name.endswith(NIFTI) for p in path.iterdir())


def _masks(scans: Sequence[Path], masks: Sequence[Path]) -> list[Path | None]:
    if not masks:
        return [None] * len(scans)
    if len(masks) == 1 and masks[0].is_dir():
        return _masks_in(masks[0], scans)
    if len(masks) != len(scans):
        raise InputError(
            "-m",
            "masks",
            str(len(masks)),
            f"{len(scans)}, one a scan, or a folder",
            "give as many masks as scans, or a folder with files of the scans' names",
        )
    return list(masks)


def _masks_in(folder: Path, scans: Sequence[Path]) -> list[Path | None]:
    organs = [path for path in (folder, *folder.iterdir()) if _is_folder_of_organs(path)]
    by_name = {scan_name(path): path for path in folder.iterdir() if path not in organs}
    found = [by_name.get(scan_name(scan)) for scan in scans]
    if not any(found):
        looked_for = f"{scan_name(scans[0])}.nii.gz"
        if len(scans) > 1:
            looked_for += f", or that of another of the {len(scans)} scans"
        hint = "name the mask, or leave out -m"
        if organs:
            hint = "it has a file an organ: make one label map a scan with `segment -ml`"
        raise InputError(folder, "-m", "no mask", looked_for, hint)
    return found


def _is_folder_of_organs(path: Path) -> bool:
    """Whether it is what `segment` writes of a scan without `-ml`."""
    return path.is_dir() and any(scan_name(inside) in TOTALSEGMENTATOR for inside in path.iterdir())


def scan_name(path: Path) -> str:
    """The name of a scan's file or folder, without its ending."""
    name = path.resolve().name
    for ending in (".nii.gz", ".nii"):
        name = name.removesuffix(ending)
    return name
