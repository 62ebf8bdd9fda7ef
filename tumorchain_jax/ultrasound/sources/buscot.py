"""BUS-CoT as released: `DatasetFiles/lesion_dataset.json` and crops of lesions.

A record's key is `SPLIT_NNNNNN@K.png`; NNNNNN is the source picture, which stands for a patient
where the expert file does not name one, and K the lesion in it. The crops are the lesions, so there
is no mask, and the box is the picture. BUSI and BUS-BRA are among its sources: a model trained on
this set is not to be tested on those.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.ultrasound.sources.row import SourceRow, check_label

NAME, LICENCE = "bus-cot", "as stated with the released files"
TABLE = "DatasetFiles/lesion_dataset.json"
REPORT = {
    "edge": "LesionEdge",
    "boundary": "LesionBoundary",
    "echo": "EchoCharacteristics",
    "calcifications": "LesionCalcificationFeatures",
}


def detect(folder: Path) -> bool:
    """Whether a folder is this set."""
    return (folder / TABLE).is_file()


def read(folder: Path) -> Iterator[SourceRow]:
    """List its lesions.

    Raises:
        InputError: the table is malformed, or a path leaves the folder.
    """
    path = folder / TABLE
    for key, record in read_json(path).items():
        if not isinstance(record, Mapping):
            raise InputError(path, key[:60], json.dumps(record)[:60], "an object", "replace it")
        image = folder / str(record.get("image_path", ""))
        if not image.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                path, f"{key[:60]}.image_path", "a path outside", "one inside", "fix it"
            )
        pathology = _object(path, key, record, "pathology_histology")
        report = _object(path, key, record, "us_report")
        source, _, lesion = Path(key).stem.partition("@")
        subtypes = pathology.get("subtype")
        yield SourceRow(
            id=Path(key).stem,
            image=image,
            masks=(),
            patient=str(record.get("patient_id") or source.rsplit("_", 1)[-1]),
            label=check_label(path, key, str(pathology.get("pathology", ""))),
            view=lesion,
            birads=str(report.get("BIRADS", "")).lower(),
            descriptors={
                ours: str(report[each]) for ours, each in REPORT.items() if report.get(each)
            },
            histopathology=", ".join(subtypes) if isinstance(subtypes, Mapping) else "",
        )


def _object(path: Path, key: str, record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name, {})
    if not isinstance(value, Mapping):
        found = json.dumps(value)[:60]
        raise InputError(path, f"{key[:60]}.{name}", found, "an object", "replace it")
    return value
