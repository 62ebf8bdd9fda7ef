"""Write label maps as NIfTI files with the organs' names in the header."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import nibabel as nib
import numpy as np
from nibabel.nifti1 import Nifti1Extension

from tumorchain_jax.core.files import atomic_file
from tumorchain_jax.scan.nifti import read_description
from tumorchain_jax.scan.volume import Volume

# Caret's XML under code 0, as TotalSegmentator has it and reads it back (nifti_ext_header.py).
EXTENSION = 0
MADE_BY = "segmented by "
DESCRIPTION = 79
"""Bytes of a header's description, without the last, which is 0."""
COLOURS = ("1 0 0", "0 1 0", "0 0 1", "1 1 0", "1 0 1", "0 1 1", "1 .5 0", "1 0 .5", ".5 .5 .5")


def write_labels(path: Path, labels: Volume, names: Mapping[int, str], segmenter: str) -> None:
    """Write uint8 labels; the file appears whole, or not at all.

    Args:
        path: ends in `.nii` or `.nii.gz`.
        names: of the labels, for the header.
        segmenter: that made the labels, for the header.

    Raises:
        OSError: it cannot be written, a full disk among the reasons.
    """
    image = nib.Nifti1Image(np.asarray(labels.voxels, np.uint8), labels.affine)
    image.set_qform(labels.affine, 1)
    image.set_sform(labels.affine, 1)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = f"{MADE_BY}{segmenter}".encode()[:DESCRIPTION]
    image.header.extensions.append(Nifti1Extension(EXTENSION, _label_table(names).encode()))
    with atomic_file(path) as file:
        if path.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:
                image.to_stream(packed)
        else:
            image.to_stream(file)


def made_by(path: Path) -> str | None:
    """Return the segmenter that a NIfTI file of `write_labels` names; None: it names none."""
    described = read_description(path)
    return described.removeprefix(MADE_BY) if described.startswith(MADE_BY) else None


def _label_table(names: Mapping[int, str]) -> str:
    lines = []
    for label, name in names.items():
        red, green, blue = COLOURS[label % len(COLOURS)].split()
        colour = f'Red="{red}" Green="{green}" Blue="{blue}" Alpha="1"'
        lines.append(f'<Label Key="{label}" {colour}>{escape(name)}</Label>')
    table = "\n".join(lines)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<CaretExtension><VolumeInformation Index="0">'
        f"<LabelTable>\n{table}\n</LabelTable><VolumeType>Label</VolumeType>"
        "</VolumeInformation></CaretExtension>\n"
    )
