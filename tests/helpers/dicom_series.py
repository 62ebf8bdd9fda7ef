"""A CT as the folder of a DICOM series, for tests of what is made from one."""

from pathlib import Path

import numpy as np
from nibabel.orientations import axcodes2ornt
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from tumorchain_jax.scan.orientation import reorient
from tumorchain_jax.scan.volume import Volume

PATIENT = {"PatientID": "T-0042", "PatientName": "Müller^Jörg", "PatientBirthDate": "19510203"}


def thinned(volume: Volume) -> Volume:
    """Every third slice."""
    return Volume(volume.voxels[..., ::3], volume.affine @ np.diag([1, 1, 3, 1.0]))


def write_series(ct: Volume, folder: Path, **changes: object) -> Path:
    """Write one file a slice, in axial orientation; `changes` are elements of every file."""
    folder.mkdir(parents=True, exist_ok=True)
    upright = reorient(ct, axcodes2ornt(("L", "P", "S")))
    study, series, frame = generate_uid(), generate_uid(), generate_uid()
    to_lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ upright.affine
    directions = to_lps[:3, :3] / np.linalg.norm(to_lps[:3, :3], axis=0)
    for number, plane in enumerate(np.moveaxis(upright.voxels, 2, 0)):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = CTImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        stored = np.clip(np.rint(plane.T) + 1024, 0, 4095).astype(np.uint16)
        values = {
            "SpecificCharacterSet": "ISO_IR 100",
            "SOPClassUID": CTImageStorage,
            "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
            "StudyInstanceUID": study,
            "SeriesInstanceUID": series,
            "FrameOfReferenceUID": frame,
            **PATIENT,
            "PatientSex": "M",
            "StudyDate": "20240102",
            "StudyTime": "101112",
            "StudyID": "17",
            "AccessionNumber": "A-1",
            "ReferringPhysicianName": "",
            "Manufacturer": "Test",
            "Modality": "CT",
            "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"],
            "SeriesNumber": 2,
            "InstanceNumber": number + 1,
            "KVP": "120",
            "AcquisitionNumber": 1,
            "PositionReferenceIndicator": "",
            "ImagePositionPatient": [
                float(v) for v in np.round(to_lps[:3, 3] + number * to_lps[:3, 2], 6)
            ],
            "ImageOrientationPatient": [float(v) for v in np.round(directions[:, :2].T.ravel(), 6)],
            "PixelSpacing": [float(upright.spacing[1]), float(upright.spacing[0])],
            "SliceThickness": float(upright.spacing[2]),
            "SamplesPerPixel": 1,
            "PhotometricInterpretation": "MONOCHROME2",
            "Rows": stored.shape[0],
            "Columns": stored.shape[1],
            "BitsAllocated": 16,
            "BitsStored": 12,
            "HighBit": 11,
            "PixelRepresentation": 0,
            "RescaleIntercept": -1024,
            "RescaleSlope": 1,
            "RescaleType": "HU",
            **changes,
        }
        for keyword, value in values.items():
            if value is not None:
                setattr(data, keyword, value)
        data.PixelData = stored.tobytes()
        # Names say nothing of the order.
        data.save_as(folder / f"{(number * 37) % 1009:04d}.dcm", enforce_file_format=True)
    return folder
