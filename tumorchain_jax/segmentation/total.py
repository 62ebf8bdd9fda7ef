"""TotalSegmentator's task `total` (version 2) around nnU-Net's models.

A scan is turned to RAS+ and resampled, each part's network labels it, and the labels go back to the
scan's own voxels. The facts are those of totalsegmentator 2.18.0: nnunet.py (steps, splitting,
tiles), resampling.py, map_to_binary.py (parts). One thing is left out: with a subset of organs it
first crops the scan to where a coarser model (6 mm) sees them, to save time.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from nibabel.orientations import axcodes2ornt
from scipy import ndimage
from tqdm import tqdm

from tumorchain_jax import __version__
from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.scan.orientation import orientation, reorient
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.cache import SegmentationCache, scan_hash

Segmenter = Callable[[Volume, Collection[str] | None], Volume]
"""(CT, names of organs or None for all) -> TotalSegmentator v2 `total` ids on the CT's voxels."""

RAS = axcodes2ornt(("R", "A", "S"))
PARTS = {
    291: range(1, 25),
    292: range(25, 51),
    293: range(51, 69),
    294: range(69, 92),
    295: range(92, 118),
}
"""Number of each part's data set, and the ids that it finds, in the order of its own labels."""
SPACING_MM = 1.5
FAST, FAST_SPACING_MM = 297, 3.0
STEP = 0.8
ORDER = 1
"""Of the spline that resamples a scan: 1 since release 2.16.0, 3 before."""
# A scan of more voxels, and slices, is labelled in three pieces that overlap.
LARGE_VOXELS, LARGE_SLICES, MARGIN = 512 * 512 * 900, 200, 20


@dataclass(frozen=True)
class Part:
    """One network, and what its labels mean.

    Attributes:
        name: of its folder.
        ids: TotalSegmentator id of each of its labels, the background's first.
        predict: a scan in RAS+ -> its own labels on the same voxels.
        identity: what tells its weights from others, their SHA-256.
    """

    name: str
    ids: tuple[int, ...]
    predict: Callable[[Volume], Volume]
    identity: Callable[[], str]

    @property
    def organs(self) -> frozenset[str]:
        """Names of what it finds."""
        return frozenset(TOTALSEGMENTATOR[number] for number in self.ids if number)


@dataclass(frozen=True)
class TotalSegmenter:
    """Networks that together make a label map of TotalSegmentator ids: a `Segmenter`.

    Attributes:
        name: for people.
        parts: none, one, or more whose ids rise from one part to the next.
        spacing: mm, of the voxels that the networks are given; None: those of the scan.
        order: of the spline that resamples to them.
        cache: keeps what each part found in a scan.
        quiet: shows no progress, where it otherwise would: at a terminal, part by part.
    """

    name: str
    parts: tuple[Part, ...]
    spacing: float | None = None
    order: int = ORDER
    cache: SegmentationCache | None = None
    quiet: bool = False

    def __call__(self, ct: Volume, organs: Collection[str] | None = None) -> Volume:
        """uint8 ids of the organs asked for (None: of all); only the parts that find them run."""
        if organs is None:
            return self.run(ct, self.parts)
        labels = self.run(ct, self.finding(organs))
        wanted = [name in organs for name in TOTALSEGMENTATOR]
        kept = np.where(wanted, np.arange(len(wanted)), 0).astype(np.uint8)
        return Volume(kept[labels.voxels], labels.affine, labels.source)

    @property
    def organs(self) -> frozenset[str]:
        """Names of what all parts find."""
        return frozenset().union(*(part.organs for part in self.parts))

    def finding(self, organs: Collection[str]) -> tuple[Part, ...]:
        """The parts that find any of these organs."""
        return tuple(part for part in self.parts if not part.organs.isdisjoint(organs))

    def run(self, ct: Volume, parts: Sequence[Part]) -> Volume:
        """uint8 ids of all that these parts find, on the scan's own voxels."""
        labels = np.zeros(ct.shape, np.uint8)
        scan = None
        keys = self._keys(ct, parts)
        hidden = True if self.quiet or len(parts) < 2 else None
        for part in tqdm(parts, "parts", leave=False, disable=hidden):
            found = self.cache.get(keys[part.name], ct.shape) if self.cache else None
            if found is None:
                scan = scan or self._to_grid(ct)
                found = self._to_scan(self._predict(part, scan), ct)
                if self.cache:
                    self.cache.put(keys[part.name], found)
            # A later part overwrites an earlier one; its ids are the larger ones.
            np.maximum(labels, found, out=labels)
        return Volume(labels, ct.affine, f"{ct.source}, segmented")

    def _keys(self, ct: Volume, parts: Sequence[Part]) -> dict[str, str]:
        """What each part's labels are kept under: all that decides them."""
        if self.cache is None:
            return {}
        common = (__version__, scan_hash(ct), self.spacing, self.order)
        how = {part.name: repr((*common, part.name, part.identity())) for part in parts}
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in how.items()}

    def _to_grid(self, ct: Volume) -> Volume:
        scan = reorient(ct, RAS)
        return scan if self.spacing is None else to_spacing(scan, self.spacing, self.order)

    def _to_scan(self, labels: Volume, ct: Volume) -> np.ndarray:
        upright = reorient(ct, RAS)
        voxels = labels_to_shape(labels.voxels, upright.shape)
        return reorient(Volume(voxels, upright.affine), orientation(ct.affine)).voxels

    def _predict(self, part: Part, scan: Volume) -> Volume:
        """A part's ids on the voxels that its network is given."""
        large = np.prod(scan.shape) > LARGE_VOXELS and scan.shape[2] > LARGE_SLICES
        if large and len(self.parts) > 1:
            labels = predict_in_thirds(part.predict, scan)
        else:
            labels = part.predict(scan).voxels
        return Volume(np.array(part.ids, np.uint8)[labels], scan.affine)


def to_spacing(scan: Volume, spacing: float, order: int) -> Volume:
    """A scan with voxels of `spacing` mm, in whole HU; as it is where it has them already.

    As TotalSegmentator does it: the first and last voxels stay where they are, whatever the affine
    says, and fractions are cut off.
    """
    # nibabel's spacing is that of a header, in single precision.
    old = np.array(scan.spacing, np.float32)
    if (old == spacing).all():
        return scan
    zoom = old.astype(np.float64) / spacing
    voxels = np.asarray(scan.voxels, np.float32)
    hu = ndimage.zoom(voxels, zoom, output=np.float64, order=order, mode="nearest")
    affine = scan.affine.copy()
    affine[:3, :3] /= zoom
    return Volume(np.trunc(hu).astype(np.float32), affine, scan.source)


def labels_to_shape(labels: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Labels in the shape of the scan that `to_spacing` took: of each voxel the nearest one."""
    if labels.shape == shape:
        return labels
    return ndimage.zoom(labels, np.divide(shape, labels.shape), order=0, mode="nearest")


def predict_in_thirds(predict: Callable[[Volume], Volume], scan: Volume) -> np.ndarray:
    """Labels of a long scan, made from three pieces along its last axis that overlap."""
    third = scan.shape[2] // 3
    low = predict(_slab(scan, 0, third + MARGIN)).voxels
    middle = predict(_slab(scan, third + 1 - MARGIN, 2 * third + MARGIN)).voxels
    high = predict(_slab(scan, 2 * third + 1 - MARGIN, scan.shape[2])).voxels
    kept = low[..., :-MARGIN], middle[..., MARGIN - 1 : -MARGIN], high[..., MARGIN - 1 :]
    return np.concatenate(kept, axis=2)


def _slab(scan: Volume, start: int, stop: int) -> Volume:
    affine = scan.affine.copy()
    affine[:3, 3] += start * affine[:3, 2]
    return Volume(scan.voxels[:, :, start:stop], affine, scan.source)
