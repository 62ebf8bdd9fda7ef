"""One picture of the manifest: what is known of it and of its lesion; JSON lines in and out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines

Label = Literal["benign", "malignant", "normal"]
LABELS = ("benign", "malignant", "normal")
BIRADS = ("", "0", "1", "2", "3", "4", "4a", "4b", "4c", "5", "6")
MANIFEST = "manifest.jsonl"
REMAKE = "fix the line, or make the manifest again with `tumorchain bus prepare`"


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels: its left upper corner and its sides."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Lesion:
    """A picture and the one lesion that it shows, or none.

    Attributes:
        id: unique in a manifest.
        image: file of the picture, relative to the manifest.
        mask: file of the lesion's mask; empty without one.
        box: of the lesion; None without one.
        patient: unique in a manifest.
        patient_known: whether the source names patients; else every cluster of near-duplicates
            counts as one.
        view: of several pictures of one lesion or patient, which.
        device: of the source.
        source: name of the data set.
        label: by pathology or follow-up.
        birads: category that a reader gave; empty if none.
        descriptors: of the BI-RADS lexicon, name -> value as the source has it.
        histopathology: as the source has it.
        licence: of the picture.
        width, height: of the picture, in pixels.
        pixel_mm: side of a pixel; None where it is not known.
        overlays: marks burned into it, see `overlays.py`.
        hash: perceptual hash, see `duplicates.py`.
        cluster: number of the group of pictures that may not be parted: one patient's, and near
            duplicates.
    """

    id: str
    image: str
    mask: str
    box: Box | None
    patient: str
    patient_known: bool
    view: str
    device: str
    source: str
    label: Label
    birads: str = ""
    descriptors: Mapping[str, str] = field(default_factory=dict)
    histopathology: str = ""
    licence: str = ""
    width: int = 0
    height: int = 0
    pixel_mm: float | None = None
    overlays: tuple[str, ...] = ()
    hash: str = ""
    cluster: int = -1

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_manifest(folder: Path) -> list[Lesion]:
    """Read the manifest of a prepared folder.

    Raises:
        InputError: there is none; a line is malformed or has a path that leaves the folder; an id
            is there twice; a lesion has two labels; or a cluster was parted.
    """
    path = folder / MANIFEST
    rows = [_read(folder, source, values) for source, _, values in read_lines(path)]
    if not rows:
        raise InputError(path, "lines", "none", "a picture on each", REMAKE)
    ids: set[str] = set()
    for row in rows:
        if row.id in ids:
            raise InputError(path, "id", f"{row.id} twice", "each once", REMAKE)
        ids.add(row.id)
    _check_labels(path, rows)
    return rows


def _check_labels(path: Path, rows: list[Lesion]) -> None:
    """Refuse two labels of one picture of one patient's view."""
    labels: dict[tuple[str, str], str] = {}
    for row in rows:
        key = (row.patient, row.view)
        if row.patient_known and labels.setdefault(key, row.label) != row.label:
            found = f"{labels[key]} and {row.label} for view {row.view or 'single'!r}"
            raise InputError(path, f"label of {row.patient}", found, "one label", REMAKE)


def _read(folder: Path, source: str, values: Mapping[str, Any]) -> Lesion:
    line = LineFields(source, values)
    line.check_known({each.name for each in fields(Lesion)})
    plain = {
        name: line.text(name, "")
        for name in ("view", "device", "histopathology", "licence", "hash", "birads")
    }
    if plain["birads"] not in BIRADS:
        line.refuse("birads", f"one of {', '.join(BIRADS[1:])}, or empty", REMAKE)
    descriptors = values.get("descriptors", {})
    if not isinstance(descriptors, Mapping) or not all(
        isinstance(value, str) for value in descriptors.values()
    ):
        line.refuse("descriptors", "text by name", REMAKE)
    return Lesion(
        id=line.text("id", filled=True),
        image=_inside(folder, line, "image"),
        mask=_inside(folder, line, "mask") if values.get("mask") else "",
        box=_box(line, values),
        patient=line.text("patient", filled=True),
        patient_known=line.boolean("patient_known"),
        source=line.text("source", filled=True),
        label=cast(Label, line.one_of("label", LABELS)),
        descriptors=dict(descriptors),
        width=line.integer("width"),
        height=line.integer("height"),
        pixel_mm=_millimetres(line, values),
        overlays=tuple(map(str, values.get("overlays", ()))),
        cluster=line.integer("cluster"),
        **plain,
    )


def _inside(folder: Path, line: LineFields, name: str) -> str:
    """A path that stays within the folder, links followed."""
    text = line.path(name)
    path = Path(text)
    if path.is_absolute() or not (folder / path).resolve().is_relative_to(folder.resolve()):
        line.refuse(name, "a path within the folder of the manifest", REMAKE)
    return text


def _box(line: LineFields, values: Mapping[str, Any]) -> Box | None:
    box = values.get("box")
    if box is None:
        return None
    sides = ("x", "y", "width", "height")
    good = isinstance(box, Mapping) and sorted(box) == sorted(sides)
    if not good or not all(type(box[side]) is int and box[side] >= 0 for side in sides):
        line.refuse("box", "x, y, width and height in pixels, or null", REMAKE)
    return Box(**box)


def _millimetres(line: LineFields, values: Mapping[str, Any]) -> float | None:
    value = values.get("pixel_mm")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 10:
        line.refuse("pixel_mm", "millimetres, or null", REMAKE)
    return float(value)


def lines(rows: list[Lesion]) -> Iterator[str]:
    """The lines of a manifest."""
    return (row.to_json() + "\n" for row in rows)
