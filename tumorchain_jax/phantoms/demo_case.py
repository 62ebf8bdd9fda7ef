"""The cases of `tumorchain demo`: a phantom, and a real CT with a painted lesion.

The CT is TotalSegmentator's example (Apache-2.0), downloaded once as part of its source archive
through pip, and verified by its hash. Without it there is the phantom alone. The label map of
the example is only used to place the lesion: the organs that the chain looks at are segmented.
"""

import hashlib
import subprocess
import tarfile
import tempfile
from itertools import count
from pathlib import Path

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.core.downloads import NotAvailable, cache_folder, download, is_right
from tumorchain_jax.core.files import write_file
from tumorchain_jax.phantoms.patient import Patient, make_patient, paint_lesion
from tumorchain_jax.phantoms.records import describe, largest
from tumorchain_jax.scan.read import read_ct, read_labels

ARCHIVE = "totalsegmentator==2.18.0"
CT, LABELS = "example_ct.nii.gz", "example_seg_fast_force_split.nii.gz"
SHA256 = {
    CT: "dbd3ae6d614d1d7ef3a46925c30c70038ed52da6b37fdd6afdc7b9b71387e3e1",
    LABELS: "e8097758e56e73099075b6caaebce23ef11bc6fad66a4ec3753b9406846558c7",
}


def example_files() -> tuple[Path, Path]:
    """Return the paths of the example CT and its label map; download them once.

    Raises:
        NotAvailable: no network, no such archive, or other files in it.
    """
    folder = cache_folder() / "example"
    if not all(is_right(folder / name, sha256) for name, sha256 in SHA256.items()):
        try:
            with tempfile.TemporaryDirectory() as scratch:
                archive = download(ARCHIVE, Path(scratch), ("--no-binary", ":all:"))
                _extract(archive, folder)
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            raise NotAvailable(str(error).splitlines()[0]) from error
    return folder / CT, folder / LABELS


def phantom_patient(seed: int) -> Patient:
    """Make the first digital patient with a lesion from this seed on."""
    patients = (make_patient(number) for number in count(seed))
    return next(patient for patient in patients if patient.lesions)


def ct_patient(seed: int) -> Patient:
    """Paint a lesion into the example CT.

    Raises:
        NotAvailable: as `example_files`.
    """
    ct_path, labels_path = example_files()
    ct = read_ct(ct_path)
    return paint_lesion(ct, read_labels(labels_path, ct), seed)


def truth(patient: Patient) -> str:
    """Describe what was painted."""
    if not patient.lesions:
        return "no lesion"
    lesion = largest(patient.lesions)
    return f"{display_name(lesion.organ)} ({lesion.segment}): {describe(patient.lesions)}"


def _extract(archive: Path, folder: Path) -> None:
    """Extract the two files by name, verified; nothing else of the archive is read."""
    found = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if name not in SHA256 or not member.isfile():
                continue
            stream = tar.extractfile(member)
            content = stream.read() if stream else b""
            if hashlib.sha256(content).hexdigest() == SHA256[name]:
                write_file(folder / name, content)
                found.add(name)
    if found != SHA256.keys():
        raise OSError(f"{archive.name} does not hold the expected {' and '.join(SHA256)}")
