"""BrEaST (TCIA Breast-Lesions-USG, Pawłowska et al. 2024), its table saved as `clinical_data.csv`.

Its columns are those of the published spreadsheet; `scale` is there where the pictures were shrunk.
"""

from collections.abc import Iterator
from pathlib import Path

from tumorchain_jax.ultrasound.sources.row import SourceRow, check_label, read_table

NAME, LICENCE = "breast", "CC BY 4.0 (Breast-Lesions-USG, doi 10.7937/9WKK-Q141)"
TABLE, PICTURES = "clinical_data.csv", "images_and_masks"
DESCRIPTORS = {
    "tissue": "Tissue_composition",
    "shape": "Shape",
    "margin": "Margin",
    "echo": "Echogenicity",
    "posterior": "Posterior_features",
    "halo": "Halo",
    "calcifications": "Calcifications",
    "skin_thickening": "Skin_thickening",
}
COLUMNS = (
    *("CaseID", "Image_filename", "Mask_tumor_filename", "Pixel_size"),
    *("BIRADS", "Diagnosis", "Classification", *DESCRIPTORS.values()),
)
UNKNOWN = ("not available", "not applicable", "")


def detect(folder: Path) -> bool:
    """Whether a folder is this set."""
    return (folder / TABLE).is_file()


def read(folder: Path) -> Iterator[SourceRow]:
    """List its pictures; each case is a patient.

    Raises:
        InputError: the table lacks a column.
    """
    path = folder / TABLE
    pictures = folder / PICTURES if (folder / PICTURES).is_dir() else folder
    for row in read_table(path, COLUMNS):
        name = Path(row["Image_filename"]).stem
        masks = [each.strip() for each in row["Mask_tumor_filename"].split("&") if each.strip()]
        yield SourceRow(
            id=name,
            image=pictures / Path(row["Image_filename"]).name,
            masks=tuple(pictures / Path(each).name for each in masks),
            patient=row["CaseID"],
            label=check_label(path, name, row["Classification"]),
            birads=row["BIRADS"].strip().lower(),
            descriptors={
                ours: row[theirs]
                for ours, theirs in DESCRIPTORS.items()
                if row[theirs] not in UNKNOWN
            },
            histopathology="" if row["Diagnosis"] in UNKNOWN else row["Diagnosis"],
            pixel_mm=_millimetres(row),
        )


def _millimetres(row: dict[str, str]) -> float | None:
    """The side of a pixel: the table has centimetres of the original picture."""
    try:
        return 10 * float(row["Pixel_size"]) / float(row.get("scale") or 1)
    except ValueError:
        return None
