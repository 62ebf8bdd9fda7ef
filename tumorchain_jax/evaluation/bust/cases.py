"""Inclusion and exclusion over a prepared manifest, and how many pictures fell out where.

    OUTPUT/manifest.jsonl the cases: lines of the manifest under new, meaningless names
    OUTPUT/key.tsv        case and its name in the manifest; for the organiser alone
    OUTPUT/images/        their pictures, pixels alone
    OUTPUT/flow.json, flow.txt, flow.svg    what fell out where
    OUTPUT/excluded.tsv   each excluded picture and why

The rules stand in one order, and a picture falls out at the first that it breaks.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.ultrasound.duplicates import near_duplicates, perceptual_hash
from tumorchain_jax.ultrasound.lesion import MANIFEST, Lesion, lines, read_manifest
from tumorchain_jax.ultrasound.overlays import find_overlays
from tumorchain_jax.ultrasound.picture import read_picture

FLOW, KEY = "flow.json", "key.tsv"
REASONS = {
    "unreadable": "not a readable 8-bit picture",
    "colour": "in colour: Doppler, elastography or contrast",
    "small": "too small",
    "flat": "too little contrast",
    "blurred": "without fine detail",
    "pathology": "pathology unknown, disputed, or by follow-up alone",
    "identifiers": "burned-in text, which may identify a person",
    "duplicate": "near duplicate of another picture",
    "second": "another picture of the same lesion",
}
"""In the order in which they are asked."""


@dataclass(frozen=True)
class Rules:
    """Limits of inclusion; set beforehand, by no result.

    Attributes:
        least_side: of a picture, in pixels.
        least_contrast: 95th less 5th percentile of its grey values.
        least_detail: standard deviation of a picture less its blur (1.5 pixels), as a share of its
            own; speckle gives 0.1 and more, a picture out of focus less.
        histopathology: refuse lesions whose histopathology the source does not tell.
        allow_text: keep pictures with burned-in text.
    """

    least_side: int = 128
    least_contrast: float = 40.0
    least_detail: float = 0.04
    histopathology: bool = False
    allow_text: bool = False


class Step(NamedTuple):
    """What a rule left.

    Attributes:
        excluded: pictures by label.
        left: pictures after it.
    """

    reason: str
    excluded: dict[str, int]
    left: int


class Flow(NamedTuple):
    """How many pictures fell out where.

    Attributes:
        calipers: of the included, pictures with calipers; flagged, not excluded.
        labels, sets: of the included.
    """

    start: int
    steps: tuple[Step, ...]
    labels: dict[str, int]
    sets: dict[str, int]
    patients: int
    calipers: int

    @property
    def included(self) -> int:
        """Cases."""
        return sum(self.labels.values())


def picture_fault(path: Path, rules: Rules) -> str:
    """The first rule that a picture's pixels break, as a key of `REASONS`; empty: none."""
    try:
        picture = read_picture(path, allow_colour=True)
    except InputError:
        return "unreadable"
    grey = picture.grey
    if picture.is_coloured:
        return "colour"
    if min(grey.shape) < rules.least_side:
        return "small"
    low, high = np.percentile(grey, [5, 95])
    if high - low < rules.least_contrast:
        return "flat"
    if detail(grey) < rules.least_detail:
        return "blurred"
    if "text" in find_overlays(grey) and not rules.allow_text:
        return "identifiers"
    return ""


def detail(grey: UInt8[np.ndarray, "H W"]) -> float:
    """Share of a picture's standard deviation that a blur of 1.5 pixels takes away."""
    values = grey.astype(np.float32)
    fine = values - ndimage.gaussian_filter(values, 1.5)
    return float(fine.std() / max(float(values.std()), 1e-6))


def select(folder: Path, rules: Rules) -> tuple[list[Lesion], dict[str, str], Flow]:
    """Apply the rules to a prepared folder.

    Returns:
        the included lines of its manifest; id -> reason of each excluded one; the flow.

    Raises:
        InputError: the manifest cannot be used, or nothing is left.
    """
    rows = read_manifest(folder)
    reasons: dict[str, str] = {}
    rank = list(REASONS)
    for row in rows:
        found = [picture_fault(folder / row.image, rules)]
        found += ["pathology"] if not _pathology_known(row, rules) else []
        if known := [each for each in found if each]:
            reasons[row.id] = min(known, key=rank.index)
    # A duplicate may only fall out for a picture that stays.
    rest = _without_duplicates(folder, [row for row in rows if row.id not in reasons], reasons)
    chosen = _one_a_lesion(rest, reasons)
    if not chosen:
        common = Counter(reasons.values()).most_common(1)[0][0]
        found_text = f"none of {len(rows)} left; most fell out as {common}"
        raise InputError(folder, "cases", found_text, "one or more", "see the rules of bust cases")
    return chosen, reasons, _flow(rows, reasons, chosen)


def _pathology_known(row: Lesion, rules: Rules) -> bool:
    said = row.histopathology.casefold()
    if row.label == "normal":
        return True
    if "follow-up" in said or "follow up" in said:
        return False
    return bool(said.strip()) or not rules.histopathology


def _without_duplicates(folder: Path, rows: list[Lesion], reasons: dict[str, str]) -> list[Lesion]:
    """Keep of each two near duplicates the one that is preferred; hashes are made anew."""
    ordered = sorted(rows, key=_preferred)
    hashes = [perceptual_hash(read_picture(folder / row.image).grey) for row in ordered]
    pairs = [(ordered[first], ordered[second]) for first, second in near_duplicates(hashes)]
    for one, other in pairs:
        if one.label != other.label:  # the same picture, disputed: neither is a case
            reasons[one.id] = reasons[other.id] = "pathology"
    for one, other in pairs:  # the first of a pair is the preferred one
        if one.id not in reasons:
            reasons.setdefault(other.id, "duplicate")
    return [row for row in rows if row.id not in reasons]


def _one_a_lesion(rows: list[Lesion], reasons: dict[str, str]) -> list[Lesion]:
    """Keep one picture of each known patient and label; sets name patients, not lesions."""
    taken: set[tuple[str, str]] = set()
    for row in sorted(rows, key=_preferred):
        key = (row.patient, row.label)
        if row.patient_known and key in taken:
            reasons[row.id] = "second"
        taken.add(key)
    return [row for row in rows if row.id not in reasons]


def _preferred(row: Lesion) -> tuple[int, int, str]:
    """Most representative first: fewest marks, largest lesion, then by name."""
    area = row.box.width * row.box.height if row.box else 0
    return len(row.overlays), -area, row.id


def _flow(rows: Sequence[Lesion], reasons: dict[str, str], chosen: Sequence[Lesion]) -> Flow:
    steps, left = [], len(rows)
    for reason in REASONS:
        out = Counter(row.label for row in rows if reasons.get(row.id) == reason)
        left -= out.total()
        steps.append(Step(reason, dict(sorted(out.items())), left))
    return Flow(
        len(rows),
        tuple(steps),
        dict(sorted(Counter(row.label for row in chosen).items())),
        dict(sorted(Counter(row.source for row in chosen).items())),
        len({row.patient for row in chosen if row.patient_known}),
        sum("calipers" in row.overlays for row in chosen),
    )


def write_cases(folder: Path, output: Path, rules: Rules) -> Flow:
    """Write a new folder of cases.

    Raises:
        InputError: as `select`; or the output is there.
    """
    chosen, reasons, flow = select(folder, rules)
    with atomic_directory(output) as part:
        (part / "images").mkdir()
        made = {row.id: _case(folder, part, row) for row in chosen}
        kept = sorted(made.values(), key=lambda row: row.id)
        key = "".join(f"{row.id}\t{json.dumps(name)}\n" for name, row in made.items())
        (part / KEY).write_text(key, "utf-8")
        (part / MANIFEST).write_text("".join(lines(kept)), "utf-8")
        values = flow_values(flow) | {"rules": asdict(rules)}
        (part / FLOW).write_text(json.dumps(values, indent=1) + "\n", "utf-8")
        (part / "flow.txt").write_text(flow_text(flow) + "\n", "utf-8")
        (part / "flow.svg").write_text(flow_svg(flow), "utf-8")
        told = "".join(f"{json.dumps(id)}\t{reason}\n" for id, reason in sorted(reasons.items()))
        (part / "excluded.tsv").write_text(told, "utf-8")
    return flow


def _case(folder: Path, part: Path, row: Lesion) -> Lesion:
    """Copy a picture as pixels alone, under a name that tells nothing."""
    grey = read_picture(folder / row.image).grey
    name = hashlib.sha256(row.id.encode() + grey.tobytes()).hexdigest()[:12]
    Image.fromarray(grey).save(part / "images" / f"{name}.png")
    height, width = grey.shape
    return replace(
        row, id=name, image=f"images/{name}.png", mask="", hash=perceptual_hash(grey),
        overlays=find_overlays(grey), width=width, height=height,
    )  # fmt: skip


def flow_values(flow: Flow) -> dict[str, Any]:
    """The flow as JSON holds it."""
    steps = [{**step._asdict(), "what": REASONS[step.reason]} for step in flow.steps]
    return {**flow._asdict(), "steps": steps, "included": flow.included}


def flow_text(flow: Flow) -> str:
    """The flow for people."""
    rows = [f"{flow.start:6}  pictures in the manifest"]
    for step in flow.steps:
        if count := sum(step.excluded.values()):
            labels = ", ".join(f"{each} {label}" for label, each in step.excluded.items())
            rows.append(f"{-count:+6}  {REASONS[step.reason]} ({labels}); {step.left} left")
    labels = ", ".join(f"{each} {label}" for label, each in flow.labels.items())
    rows.append(f"{flow.included:6}  cases: {labels}; {flow.patients} known patients")
    rows.append("        sets: " + ", ".join(f"{each} {name}" for name, each in flow.sets.items()))
    rows.append(f"        {flow.calipers} with calipers, which were kept and flagged")
    return "\n".join(rows)


ROW, BOX, SIDE = 58, 250, 330


def flow_svg(flow: Flow) -> str:
    """The flow as a chart: what stays on the left, what falls out on the right."""
    shown = [step for step in flow.steps if step.excluded]
    height = ROW * (len(shown) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {BOX + SIDE + 60} {height}" '
        'font-family="sans-serif" font-size="13" role="img" aria-label="Flow of the cases">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_rows(flow, shown),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(flow: Flow, shown: Sequence[Step]) -> Iterator[str]:
    yield _box(5, 5, BOX, f"{flow.start} pictures")
    for number, step in enumerate(shown, 1):
        y = 5 + ROW * number
        middle, count = y + 19, sum(step.excluded.values())
        yield f'<path d="M{BOX // 2} {y - ROW + 38}V{y}M{BOX + 5} {middle}h40" stroke="#555"/>'
        yield _box(5, y, BOX, f"{step.left} left")
        yield _box(BOX + 45, y, SIDE, f"{count}: {REASONS[step.reason]}")
    y = 5 + ROW * (len(shown) + 1)
    labels = ", ".join(f"{each} {label}" for label, each in flow.labels.items())
    yield f'<path d="M{BOX // 2} {y - ROW + 38}V{y}" stroke="#555"/>'
    yield _box(5, y, BOX + SIDE + 40, f"{flow.included} cases: {labels}")


def _box(x: int, y: int, width: int, text: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="38" fill="#f4f6f8" stroke="#1f5f8b"/>'
        f'<text x="{x + 10}" y="{y + 24}" fill="#1d2733">{escape(text)}</text>'
    )
