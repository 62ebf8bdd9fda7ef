"""Detect leaks between the training and the test patients of a data set."""

import hashlib
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordReader

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.splits import REMAKE, SIDES, read_split


def check_split(folder: Path) -> None:
    """Refuse a data set in which training and test share a patient or an image.

    Raises:
        InputError: as `read_split`; a patient of the records is in neither list; or a training
            patient's image is, byte for byte, that of a test patient.
    """
    split = read_split(folder)
    patients = {(record.scan, record.patient) for record in read_records(folder)}
    side_of = {name: side for side in SIDES for name in split[side]}
    for _, name in sorted(patients):
        if name not in side_of:
            found = f"{name} in neither list"
            raise InputError(folder / "split.json", "split", found, "each patient in one", REMAKE)
    digests = _image_digests(folder)
    first: dict[tuple[bytes, str], str] = {}
    for scan, name in sorted(patients):
        if scan not in digests:
            found, expected = f"no scan {scan}, {name}'s", f"as many as the {len(digests)} stored"
            raise InputError(folder, "scans", found, expected, "make the data set again")
        digest, side = digests[scan], side_of[name]
        first.setdefault((digest, side), name)
        other = first.get((digest, SIDES[side == "train"]))
        if other is not None:
            raise InputError(
                folder,
                "scans",
                f"the image of {name} ({side}) is that of {other} ({side_of[other]})",
                "no image on both sides",
                f"put both in one list of split.json, or leave {name} out of the data",
            )


def _image_digests(folder: Path) -> dict[int, bytes]:
    """Map each scan to a hash of its image."""
    digests: dict[int, bytes] = {}
    for path in shard_paths(folder, "scans"):
        reader = ArrayRecordReader(path)
        for number in range(reader.num_records()):
            image = ModelScan.from_bytes(reader.read([number])[0]).image
            digests[len(digests)] = hashlib.sha256(image.tobytes()).digest()
        reader.close()
    return digests
