"""A label map as a DICOM Segmentation object (SEG), one segment an organ."""

import colorsys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydicom.dataset import Dataset
from pydicom.sr.coding import Code

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.dicom.device import LONGEST, UNVERIFIED, Device
from tumorchain_jax.dicom.organ_codes import organ_codes
from tumorchain_jax.dicom.source import SourceSeries
from tumorchain_jax.scan.volume import Volume

if TYPE_CHECKING:
    from highdicom.color import CIELabColor
    from highdicom.seg import Segmentation, SegmentDescription

SERIES_NUMBER = 9001
"""Of the SEG's series; SR and key images follow. Numbers of scanners are smaller as a rule."""
Algorithm = Literal["AUTOMATIC", "SEMIAUTOMATIC"]


def segmentation(
    source: SourceSeries,
    labels: Volume,
    names: Mapping[int, str],
    device: Device,
    algorithm: Algorithm = "AUTOMATIC",
) -> "Segmentation":
    """Make the SEG of a label map; organs without voxels have no segment.

    Args:
        labels: TotalSegmentator v2 ids `[columns, rows, slices]`, on the voxels of `source`.
        names: of the organs to take, by id.
        device: that made the label map.
        algorithm: SEMIAUTOMATIC for a label map of which it is not known who made it.

    Raises:
        InputError: the label map has none of these organs, or is not on the series' grid.
    """
    import highdicom

    first = source.first
    shape = first.Columns, first.Rows, len(source.slices)
    if labels.shape != shape:
        expected = f"the series' {shape}"
        raise InputError(labels.source, "dim", f"{labels.shape}", expected, "segment it again")
    present = [number for number in np.unique(labels.voxels).tolist() if number in names]
    if not present:
        hint = "there is nothing to write: leave out --dicom"
        raise InputError(labels.source, "labels", "no organ", "a segmented organ", hint)
    order = np.zeros(256, np.uint8)
    order[present] = range(1, len(present) + 1)
    segments = [
        _segment(number, names[label], device, algorithm)
        for number, label in enumerate(present, start=1)
    ]
    return highdicom.seg.Segmentation(
        source.slices,
        order[labels.voxels].transpose(2, 1, 0),
        "BINARY",
        segments,
        series_instance_uid=highdicom.UID(),
        series_number=SERIES_NUMBER,
        sop_instance_uid=highdicom.UID(),
        instance_number=1,
        content_label="ORGANS",
        content_description=UNVERIFIED,
        series_description=f"Organs ({UNVERIFIED})",
        **device.equipment(),
    )


def _segment(number: int, name: str, device: Device, algorithm: Algorithm) -> "SegmentDescription":
    from highdicom.seg import SegmentDescription

    code = organ_codes()[name]
    segment = SegmentDescription(
        number,
        name[:LONGEST],
        code.category,
        code.kind,
        algorithm,
        device.algorithm(),
        anatomic_regions=[code.site] if code.site else None,
        display_color=_colour(number),
    )
    if code.side is not None:
        owner = segment.SegmentedPropertyTypeCodeSequence[0]
        keyword = "SegmentedPropertyTypeModifierCodeSequence"
        if code.site:
            owner = segment.AnatomicRegionSequence[0]
            keyword = "AnatomicRegionModifierSequence"
        setattr(owner, keyword, [_item(code.side)])
    return segment


def _item(code: Code) -> Dataset:
    from highdicom.sr import CodedConcept

    return CodedConcept.from_code(code)


def _colour(number: int) -> "CIELabColor":
    """A colour for display; golden steps keep hues apart."""
    from highdicom.color import CIELabColor

    red, green, blue = colorsys.hls_to_rgb(number * 0.618034 % 1.0, 0.55, 0.8)
    return CIELabColor.from_rgb(round(255 * red), round(255 * green), round(255 * blue))
