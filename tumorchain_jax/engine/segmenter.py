"""The Segmentation Expert: facts of masks.

Organs are measured in a label map that was given or that a segmenter made: volume, mean HU, box,
and third of the scan's height. Lesions are measured where a map of lesions exists; no lesion is
guessed. Facts of masks say `mask` as their source; what was measured stands in place of a quote.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import ndimage

from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS, display_name, merge_labels
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_at, segment_map
from tumorchain_jax.engine.agents.ask import THIRDS
from tumorchain_jax.engine.facts import Fact, Source
from tumorchain_jax.phantoms.lesion_shape import longest_diameter
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.statistics import organ_statistics

# An organ whose middle is nearer than this share of the height to a border of thirds gets none.
_MARGIN = 0.04


def measure_files(
    case: str,
    ct: Path,
    labels: Path | None = None,
    lesions: Path | None = None,
    segmenter: Callable[[Volume], Volume] | None = None,
) -> tuple[Fact, ...]:
    """Measure the masks of a scan that is on disk.

    Args:
        case: id of the case.
        labels: TotalSegmentator v2 `total` ids on the scan's voxels; without one the segmenter
            makes them.
        lesions: n in the n-th lesion, else 0, on the scan's voxels.
        segmenter: such as `segmentation.factory.read_segmenter` gives.

    Raises:
        InputError: a file cannot be read, or is not on the scan's voxels.
        ValueError: neither a label map nor a segmenter.
    """
    volume = read_ct(ct)
    if labels is None and segmenter is None:
        raise ValueError("a label map or a segmenter is needed")
    organs = read_labels(labels, volume) if labels else segmenter(volume) if segmenter else volume
    return measure(case, volume, organs, read_labels(lesions, volume) if lesions else None)


def measure(
    case: str, ct: Volume, labels: Volume, lesions: Volume | None = None
) -> tuple[Fact, ...]:
    """Measure organs, and lesions where there is a map of them.

    Args:
        case: id of the case.
        ct: HU, `[I, J, K]`.
        labels: TotalSegmentator v2 `total` ids, the same shape and axes.
        lesions: n in the n-th lesion, else 0, the same shape and axes.

    Returns:
        Organ by organ: `volume` (ml), `mean` (HU), `box` in mm (RAS+, lowest x, y, z, then
        highest) and in fractions of the scan (unit `grid`; z from feet to head, y from front to
        back, x from right to left; lowest, then highest), `third`. Lesion by lesion: `finding`
        (`mass`, with the part), `size` (mm), `volume`, `mean`, and the `count` of each organ.
    """
    merged = merge_labels(labels.voxels)
    writer = _Writer(case, hashlib.sha256(labels.voxels.tobytes()).hexdigest())
    present = [label for label in np.unique(merged).tolist() if label]
    facts = list(_organs(writer, ct, labels, merged, present))
    if lesions is not None and lesions.voxels.any():
        facts += _lesions(writer, ct, labels, lesions)
    return tuple(facts)


class _Writer:
    def __init__(self, case: str, document: str):
        self.case, self.document = case, document

    def fact(
        self,
        organ: str,
        attribute: str,
        value: str,
        what: str,
        unit: str = "",
        lesion: int = 0,
        part: str = "",
    ) -> Fact:
        source = Source("mask", self.document, 0, 0, what)
        return Fact(
            self.case, organ, part, lesion, attribute, value, unit, "present", "definite",
            "current", source,
        )  # fmt: skip


def _organs(
    writer: _Writer, ct: Volume, labels: Volume, merged: np.ndarray, present: list[int]
) -> Iterator[Fact]:
    names = {label: ORGANS[label] for label in present}
    statistics = organ_statistics(ct, merged, names)
    upright = canonical(Volume(merged, labels.affine))
    boxes = ndimage.find_objects(upright.voxels.astype(np.int32))
    heights = np.arange(upright.shape[0]) + 0.5
    for label in present:
        organ, found = display_name(label), statistics[ORGANS[label]]
        box = boxes[label - 1]
        yield writer.fact(organ, "volume", f"{found.volume_ml:.1f}", "volume_ml", "ml")
        if found.mean_hu is not None:
            yield writer.fact(organ, "mean", f"{found.mean_hu:.0f}", "mean_hu", "HU")
        yield writer.fact(organ, "box", _box_mm(upright, box), "box_mm", "mm")
        ends = [(s.start / n, s.stop / n) for s, n in zip(box, upright.shape, strict=True)]
        fractions = [low for low, _ in ends] + [high for _, high in ends]
        value = ", ".join(f"{share:.2f}" for share in fractions)
        yield writer.fact(organ, "box", value, "box_fractions", "grid")
        filled = (upright.voxels[box] == label).any(axis=(1, 2))
        middle = 3 * (1 - heights[box[0]][filled].mean() / upright.shape[0])
        if abs(middle - np.clip(round(middle), 1, 2)) > 3 * _MARGIN:
            yield writer.fact(organ, "third", THIRDS[int(middle)], "third_of_height")


def _box_mm(volume: Volume, box: tuple[slice, ...]) -> str:
    corners = np.array([[s.start - 0.5 for s in box], [s.stop - 0.5 for s in box]])
    world = _world(volume, corners)
    return ", ".join(f"{mm:.0f}" for mm in (*world.min(0), *world.max(0)))


def _world(volume: Volume, index: np.ndarray) -> np.ndarray:
    """Map voxel indices `[..., 3]` to mm (RAS+)."""
    return index @ volume.affine[:3, :3].T + volume.affine[:3, 3]


def _lesions(writer: _Writer, ct: Volume, labels: Volume, lesions: Volume) -> Iterator[Fact]:
    digestive = np.isin(labels.voxels, DIGESTIVE)
    parts: dict[int, np.ndarray] = {}
    numbers: dict[int, int] = defaultdict(int)
    for number in np.unique(lesions.voxels).tolist():
        if not number:
            continue
        mask = lesions.voxels == number
        index = np.argwhere(mask)
        label = _organ_of(labels.voxels, mask, index, digestive)
        if not label:
            continue
        if label not in parts:
            parts[label] = segment_map(labels, label)
        numbers[label] += 1
        organ, n = display_name(label), numbers[label]
        middle = _world(labels, index.mean(0))
        part = SEGMENTS[label][segment_at(parts[label], labels.affine, middle) - 1]
        diameter = longest_diameter(_world(labels, _edge(mask, index)), labels.affine)
        millilitres = len(index) * abs(np.linalg.det(labels.affine[:3, :3])) / 1000
        for attribute, value, what, unit in (
            ("finding", "mass", "lesion_map", ""),
            ("size", f"{diameter:.0f}", "longest_diameter_mm", "mm"),
            ("volume", f"{millilitres:.1f}", "volume_ml", "ml"),
            ("mean", f"{ct.voxels[mask].mean():.0f}", "mean_hu", "HU"),
        ):
            yield writer.fact(organ, attribute, value, what, unit, n, part)
    for label, count in numbers.items():
        yield writer.fact(display_name(label), "count", str(count), "lesion_count")


def _edge(mask: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the voxels of a lesion that touch its outside; they alone decide its diameter."""
    low, high = index.min(0), index.max(0) + 1
    inner = mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    shell = inner & ~ndimage.binary_erosion(inner)
    return np.argwhere(shell) + low


def _organ_of(
    labels: np.ndarray, mask: np.ndarray, index: np.ndarray, digestive: np.ndarray
) -> int:
    """Return the digestive organ that holds most of a lesion, else the one nearest to it."""
    inside = labels[mask & digestive]
    if inside.size:
        return int(np.bincount(inside).argmax())
    if not digestive.any():
        return 0
    _, nearest = ndimage.distance_transform_edt(~digestive, return_indices=True)
    middle = tuple(np.round(index.mean(0)).astype(int))
    return int(labels[tuple(axis[middle] for axis in nearest)])
