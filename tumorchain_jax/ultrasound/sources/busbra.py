"""BUS-BRA (Gómez-Flores et al. 2023): `bus_data.csv`, `Images/bus_ID.png`, `Masks/mask_ID.png`."""

from collections.abc import Iterator
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.sources.row import SourceRow, check_label, read_table

NAME, LICENCE = "bus-bra", "free use with the notice kept and Gomez-Flores et al. 2023 cited"
TABLE = "bus_data.csv"
COLUMNS = ("ID", "Case", "Histology", "Pathology", "BIRADS", "Device", "Side")


def detect(folder: Path) -> bool:
    """Whether a folder is this set."""
    return (folder / TABLE).is_file() and (folder / "Images").is_dir()


def read(folder: Path) -> Iterator[SourceRow]:
    """List its pictures.

    Raises:
        InputError: the table lacks a column (patients are in `Case`), or a picture twice.
    """
    path, seen = folder / TABLE, set()
    for row in read_table(path, COLUMNS):
        name = row["ID"]
        if name in seen:
            raise InputError(path, "ID", f"{name} twice", "each once", "remove one")
        seen.add(name)
        yield SourceRow(
            id=name,
            image=folder / "Images" / f"{name}.png",
            masks=(folder / "Masks" / f"{name.replace('bus_', 'mask_', 1)}.png",),
            patient=row["Case"],
            label=check_label(path, name, row["Pathology"]),
            view=row["Side"],
            device=row["Device"],
            birads=row["BIRADS"].strip().lower(),
            histopathology=row["Histology"],
        )
