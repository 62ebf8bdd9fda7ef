"""DICOM out and in: SEG, SR and key images of a series, and DICOMweb."""
