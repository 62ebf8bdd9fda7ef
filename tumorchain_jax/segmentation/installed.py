"""An installed TotalSegmentator, run as a program."""

import shutil
import subprocess
import tempfile
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

import nibabel as nib
import numpy as np

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.read import read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.total import ORDER, OrganModel

PROGRAM = "TotalSegmentator"


def installed_totalsegmentator(
    fast: bool = False, order: int = ORDER, organs: Collection[str] | None = None
) -> OrganModel:
    """Make a model of all organs of `total` that hands the scan to the program.

    Args:
        fast: use its 3 mm model.
        order: of the spline that resamples the scan.
        organs: to ask it for; None: all.

    Raises:
        InputError: it is not installed.
    """
    path = shutil.which(PROGRAM)
    if path is None:
        hint = "install it (pip install TotalSegmentator), or leave out --segmenter"
        raise InputError("--segmenter", PROGRAM, "no such program", "one on the PATH", hint)
    flags = ["--ml", "--quiet"]
    if fast:
        flags += ["--fast"]
    if order != ORDER:  # a flag that it has since 2.15
        flags += ["--resampling_order", str(order)]
    if organs is not None:
        flags += ["--roi_subset", *sorted(organs)]
    program = _Program(path, flags)
    # Ids are the same for a subset of organs.
    return OrganModel(
        PROGRAM, tuple(range(len(TOTALSEGMENTATOR))), program.segment, program.identity
    )


class _Program:
    def __init__(self, path: str, flags: list[str]):
        self._path, self._flags = path, flags

    @cached_property
    def _version(self) -> str:
        version = self._run("--version").strip()
        if not version.startswith("2."):
            hint = "install that: others number organs otherwise"
            raise InputError(self._path, "version", version, f"{PROGRAM} 2", hint)
        return version

    def identity(self) -> str:
        """Return its version and its flags: its weights come with it."""
        return " ".join([PROGRAM, self._version, *self._flags])

    def segment(self, scan: Volume) -> Volume:
        self.identity()  # refuses any version but 2
        with tempfile.TemporaryDirectory() as scratch:
            ct, labels = Path(scratch) / "ct.nii", Path(scratch) / "labels.nii"
            nib.save(nib.Nifti1Image(np.asarray(scan.voxels, np.float32), scan.affine), ct)
            self._run("-i", str(ct), "-o", str(labels), *self._flags)
            return read_labels(labels, scan)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._path, *arguments], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
            raise RuntimeError(f"{PROGRAM} failed with {done.returncode}: {last}")
        return done.stdout
