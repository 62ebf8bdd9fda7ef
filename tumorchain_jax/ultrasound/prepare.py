"""`tumorchain bus prepare`: public data sets -> one folder of grey pictures, masks and a manifest.

OUTPUT/manifest.jsonl    a line for each picture, see `lesion.py`
OUTPUT/images/           8-bit grey PNG
OUTPUT/masks/            1-bit PNG
OUTPUT/left_out.tsv      pictures that were left out, and why
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool
from PIL import Image
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.ultrasound.duplicates import clusters, near_duplicates, perceptual_hash
from tumorchain_jax.ultrasound.lesion import BIRADS, MANIFEST, Box, Lesion, lines
from tumorchain_jax.ultrasound.overlays import find_overlays
from tumorchain_jax.ultrasound.picture import read_mask, read_picture
from tumorchain_jax.ultrasound.sources import breast, busbra, buscot, busi
from tumorchain_jax.ultrasound.sources.row import SourceRow

LEFT_OUT = "left_out.tsv"


@runtime_checkable
class Source(Protocol):
    """A reader of a data set."""

    NAME: str
    LICENCE: str

    def detect(self, folder: Path) -> bool:
        """Whether a folder is this set."""

    def read(self, folder: Path) -> Iterator[SourceRow]:
        """List its pictures."""


SOURCES: Sequence[Source] = (busbra, breast, buscot, busi)


def prepare(
    folders: Sequence[Path], output: Path, allow_colour: bool = False, skip_bad: bool = False
) -> dict[str, Any]:
    """Read data sets and write one prepared folder.

    Args:
        allow_colour: take coloured pictures as grey.
        skip_bad: leave out pictures that cannot be used, and list them.

    Returns:
        counts by set, label and mark, and the near duplicates that were found.

    Raises:
        InputError: a folder is no set that is known or is given twice, a picture cannot be used,
            or the output is there.
    """
    found = [(folder, _source_of(folder)) for folder in folders]
    names = [source.NAME for _, source in found]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        expected = "each data set once"
        raise InputError("command line", "-i", f"{twice[0]} twice", expected, "leave one out")
    left_out: list[tuple[str, str]] = []
    with atomic_directory(output) as part:
        rows = list(_all(found, part, allow_colour, skip_bad, left_out))
        if not rows:
            raise InputError(folders[0], "pictures", "none", "one or more", "complete the folder")
        hashes = [row.hash for row in rows]
        numbers = clusters([row.patient for row in rows], hashes)
        rows = [
            replace(row, cluster=int(number)) for row, number in zip(rows, numbers, strict=True)
        ]
        (part / MANIFEST).write_text("".join(lines(rows)), "utf-8")
        _write_left_out(part, left_out)
    return _facts(rows, left_out)


def _source_of(folder: Path) -> Source:
    if not folder.is_dir():
        raise InputError(folder, "-i", "no such folder", "a data set", "check the path")
    for source in SOURCES:
        if source.detect(folder):
            return source
    known = ", ".join(source.NAME for source in SOURCES)
    hint = "ultrasound/README.md shows their layouts"
    raise InputError(folder, "data set", "none that is known", f"one of {known}", hint)


def _all(
    found: Sequence[tuple[Path, Source]],
    part: Path,
    allow_colour: bool,
    skip_bad: bool,
    left_out: list[tuple[str, str]],
) -> Iterator[Lesion]:
    for name in ("images", "masks"):
        (part / name).mkdir()
    for folder, source in found:
        for row in tqdm(list(source.read(folder)), desc=source.NAME, unit="picture", disable=None):
            try:
                _check(folder, row)
                yield _one(source, row, part, allow_colour)
            except InputError as error:
                if not skip_bad:
                    raise
                left_out.append((f"{source.NAME}/{row.id}", str(error)))


def _check(folder: Path, row: SourceRow) -> None:
    """Refuse an empty patient, an unknown category, and files outside the data set.

    Raises:
        InputError: it names the picture.
    """
    if row.patient is not None and not row.patient.strip():
        hint = "complete the table: an unknown patient would be in two folds"
        raise InputError(row.image, "patient", "an empty name", "who it shows", hint)
    if row.birads not in BIRADS:
        expected = f"one of {', '.join(BIRADS[1:])}, or empty"
        raise InputError(row.image, "BI-RADS", repr(row.birads)[:40], expected, "fix the table")
    for path in (row.image, *row.masks):
        if not path.resolve().is_relative_to(folder.resolve()):
            found = "a file outside the data set"
            raise InputError(path, "path", found, "one within it", "put the file itself there")


def _one(source: Source, row: SourceRow, part: Path, allow_colour: bool) -> Lesion:
    """Read a picture and its mask, and write both."""
    grey = read_picture(row.image, allow_colour).grey
    masks = [read_mask(path, grey.shape) for path in row.masks]
    name = f"{source.NAME}_{row.id}".replace(" ", "_").replace("/", "_")
    Image.fromarray(grey).save(part / "images" / f"{name}.png")
    mask = np.any(masks, axis=0) if masks else None
    if mask is not None:
        Image.fromarray(mask).save(part / "masks" / f"{name}.png")
    hashed = perceptual_hash(grey)
    # Without patients a picture stands for one; near duplicates join it in a cluster.
    patient = f"{source.NAME}:{row.patient if row.patient is not None else row.id}"
    return Lesion(
        id=name,
        image=f"images/{name}.png",
        mask=f"masks/{name}.png" if mask is not None else "",
        box=_box(mask) if mask is not None else None,
        patient=patient,
        patient_known=row.patient is not None,
        view=row.view,
        device=row.device,
        source=source.NAME,
        label=row.label,
        birads=row.birads,
        descriptors=row.descriptors,
        histopathology=row.histopathology,
        licence=source.LICENCE,
        width=grey.shape[1],
        height=grey.shape[0],
        pixel_mm=row.pixel_mm,
        overlays=find_overlays(grey),
        hash=hashed,
    )


def _box(mask: Bool[np.ndarray, "H W"]) -> Box:
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    y, x = int(rows[0]), int(columns[0])
    return Box(x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1)


def _write_left_out(part: Path, left_out: Sequence[tuple[str, str]]) -> None:
    if left_out:
        text = "".join(f"{name}\t{json.dumps(why, ensure_ascii=False)}\n" for name, why in left_out)
        (part / LEFT_OUT).write_text(text, "utf-8")


def _facts(rows: Sequence[Lesion], left_out: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What was read, as plain values."""
    by_set: dict[str, Counter[str]] = {}
    for row in rows:
        by_set.setdefault(row.source, Counter())[row.label] += 1
    pairs = near_duplicates([row.hash for row in rows])
    across = [(a, b) for a, b in pairs if rows[a].label != rows[b].label]
    return {
        "pictures": len(rows),
        "lesions": sum(row.label != "normal" for row in rows),
        "normal": sum(row.label == "normal" for row in rows),
        "patients": len({row.patient for row in rows if row.patient_known}),
        "clusters": len({row.cluster for row in rows}),
        "sets": {name: dict(counts) for name, counts in by_set.items()},
        "sets_without_patients": sorted({row.source for row in rows if not row.patient_known}),
        "near_duplicates": len(pairs),
        "near_duplicates_of_two_labels": [f"{rows[a].id} = {rows[b].id}" for a, b in across],
        "overlays": dict(Counter(mark for row in rows for mark in row.overlays)),
        "left_out": len(left_out),
    }


def facts_text(facts: dict[str, Any]) -> str:
    """What was read, for people."""
    lines = [
        f"{facts['pictures']} pictures: {facts['lesions']} lesions, {facts['normal']} normal; "
        f"{facts['patients']} known patients; {facts['clusters']} groups that are not parted"
    ]
    for name, counts in facts["sets"].items():
        lines.append(f"{name}: " + ", ".join(f"{count} {label}" for label, count in counts.items()))
    for name in facts["sets_without_patients"]:
        lines.append(f"{name} names no patients: its folds cannot be proven free of leaks")
    lines.append(f"near duplicates: {facts['near_duplicates']} pairs")
    for pair in facts["near_duplicates_of_two_labels"]:
        lines.append(f"near duplicates of two labels: {pair}")
    for mark, count in facts["overlays"].items():
        lines.append(f"burned-in {mark}: {count} pictures")
    if facts["left_out"]:
        lines.append(f"left out: {facts['left_out']}, see {LEFT_OUT}")
    return "\n".join(lines)
