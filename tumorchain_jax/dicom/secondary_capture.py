"""Pictures of a report as DICOM secondary captures, which every viewer shows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from tumorchain_jax.dicom.device import UNVERIFIED, Device
from tumorchain_jax.dicom.segmentation import SERIES_NUMBER
from tumorchain_jax.dicom.source import SourceSeries

if TYPE_CHECKING:
    from highdicom.sc import SCImage


def secondary_captures(
    source: SourceSeries, pictures: Sequence[UInt8[np.ndarray, "rows columns 3"]], device: Device
) -> "list[SCImage]":
    """Make one series of RGB pictures in the study of `source`."""
    import highdicom
    from highdicom.sc import SCImage

    series = highdicom.UID()
    made = []
    for number, picture in enumerate(pictures, start=1):
        image = SCImage.from_ref_dataset(
            source.first,
            picture,
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system="PATIENT",
            series_instance_uid=series,
            series_number=SERIES_NUMBER + 2,
            sop_instance_uid=highdicom.UID(),
            instance_number=number,
            patient_orientation=("L", "P"),
            transfer_syntax_uid="1.2.840.10008.1.2.1",
            series_description=f"Key images ({UNVERIFIED})",
            **device.equipment(),
        )
        # No text about the patient is in the pictures; they show both sides of the body.
        image.BurnedInAnnotation = "NO"
        image.Laterality = ""
        made.append(image)
    return made
