"""TotalSegmentator's task `total` (version 2) around nnU-Net's models.

A scan is turned to RAS+ and resampled, each model labels it, and the labels go back to the
scan's own voxels. The facts are those of totalsegmentator 2.18.0: nnunet.py (steps, splitting,
tiles), resampling.py, map_to_binary.py (the five models). One thing is left out: with a subset of
organs it first crops the scan to where a coarser model (6 mm) sees them, to save time.
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

RAS = axcodes2ornt(("R", "A", "S"))
TOTAL_MODELS = {
    291: range(1, 25),
    292: range(25, 51),
    293: range(51, 69),
    294: range(69, 92),
    295: range(92, 118),
}
"""Data set number of each of the five models -> the ids it finds, in the order of its labels."""
SPACING_MM = 1.5
FAST_MODEL, FAST_SPACING_MM = 297, 3.0
STEP = 0.8
ORDER = 1
"""Order of the spline that resamples a scan: 1 since release 2.16.0, 3 before."""
# A scan of more voxels, and slices, is labelled in three pieces that overlap.
LARGE_VOXELS, LARGE_SLICES, MARGIN = 512 * 512 * 900, 200, 20


@dataclass(frozen=True)
class OrganModel:
    """One model, and which organs its labels mean.

    Attributes:
        name: of its folder.
        ids: TotalSegmentator id of each of its labels, the background's first.
        predict: a scan in RAS+ -> its own labels on the same voxels.
        identity: returns the SHA-256 of its weights, or another program's name and version.
    """

    name: str
    ids: tuple[int, ...]
    predict: Callable[[Volume], Volume]
    identity: Callable[[], str]

    @property
    def organs(self) -> frozenset[str]:
        """Names of the organs it finds."""
        return frozenset(TOTALSEGMENTATOR[number] for number in self.ids if number)


@dataclass(frozen=True)
class TotalSegmenter:
    """Models that together make a label map of TotalSegmentator ids.

    Attributes:
        name: for people.
        models: none, one, or more whose ids rise from one model to the next.
        spacing: mm, of the voxels that the networks are given; None: those of the scan.
        order: of the spline that resamples to that spacing.
        cache: stores what each model found in a scan.
        quiet: whether to hide the progress bar, which is shown at a terminal alone.
    """

    name: str
    models: tuple[OrganModel, ...]
    spacing: float | None = None
    order: int = ORDER
    cache: SegmentationCache | None = None
    quiet: bool = False

    def __call__(self, ct: Volume, organs: Collection[str] | None = None) -> Volume:
        """Segment a CT: uint8 ids of these organs (None: of all); only their models run."""
        if organs is None:
            return self.run(ct, self.models)
        labels = self.run(ct, self.models_for(organs))
        wanted = [name in organs for name in TOTALSEGMENTATOR]
        lookup = np.where(wanted, np.arange(len(wanted)), 0).astype(np.uint8)
        return Volume(lookup[labels.voxels], labels.affine, labels.source)

    @property
    def organs(self) -> frozenset[str]:
        """Names of the organs that all models find."""
        return frozenset().union(*(model.organs for model in self.models))

    def models_for(self, organs: Collection[str]) -> tuple[OrganModel, ...]:
        """Return the models that find any of these organs."""
        return tuple(model for model in self.models if not model.organs.isdisjoint(organs))

    def run(self, ct: Volume, models: Sequence[OrganModel]) -> Volume:
        """Run these models: uint8 ids of all they find, on the scan's own voxels."""
        labels = np.zeros(ct.shape, np.uint8)
        scan = None
        keys = self._keys(ct, models)
        hidden = True if self.quiet or len(models) < 2 else None
        for model in tqdm(models, "models", leave=False, disable=hidden):
            found = None
            if self.cache:
                found = _cached(self.cache, keys[model.name], model, ct)
            if found is None:
                scan = scan or self._to_grid(ct)
                found = self._to_scan(self._predict(model, scan), ct)
                if self.cache:
                    self.cache.put(keys[model.name], found)
            # A later model overwrites an earlier one; its ids are the larger ones.
            np.maximum(labels, found, out=labels)
        return Volume(labels, ct.affine, f"{ct.source}, segmented")

    def _keys(self, ct: Volume, models: Sequence[OrganModel]) -> dict[str, str]:
        """The cache key of each model's labels: a hash of all that decides them."""
        if self.cache is None:
            return {}
        common = (__version__, scan_hash(ct), self.spacing, self.order)
        how = {model.name: repr((*common, model.name, model.identity())) for model in models}
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in how.items()}

    def _to_grid(self, ct: Volume) -> Volume:
        scan = reorient(ct, RAS)
        return scan if self.spacing is None else to_spacing(scan, self.spacing, self.order)

    def _to_scan(self, labels: Volume, ct: Volume) -> np.ndarray:
        upright = reorient(ct, RAS)
        voxels = labels_to_shape(labels.voxels, upright.shape)
        return reorient(Volume(voxels, upright.affine), orientation(ct.affine)).voxels

    def _predict(self, model: OrganModel, scan: Volume) -> Volume:
        """TotalSegmentator ids on the voxels that the network is given."""
        large = np.prod(scan.shape) > LARGE_VOXELS and scan.shape[2] > LARGE_SLICES
        if large and len(self.models) > 1:
            labels = predict_in_thirds(model.predict, scan)
        else:
            labels = model.predict(scan).voxels
        return Volume(np.array(model.ids, np.uint8)[labels], scan.affine)


def _cached(cache: SegmentationCache, key: str, model: OrganModel, ct: Volume) -> np.ndarray | None:
    """The model's labels of an earlier run; None if there are none, or ids it does not find."""
    labels = cache.get(key, ct.shape)
    return labels if labels is not None and np.isin(labels, model.ids).all() else None


def to_spacing(scan: Volume, spacing: float, order: int) -> Volume:
    """Resample a scan to voxels of `spacing` mm, in whole HU; no change where it has them already.

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
    """Resample labels to the shape of the scan that `to_spacing` took, nearest neighbour."""
    if labels.shape == shape:
        return labels
    return ndimage.zoom(labels, np.divide(shape, labels.shape), order=0, mode="nearest")


def predict_in_thirds(predict: Callable[[Volume], Volume], scan: Volume) -> np.ndarray:
    """Label a long scan in three overlapping pieces along its last axis."""
    third = scan.shape[2] // 3
    low = predict(_slab(scan, 0, third + MARGIN)).voxels
    middle = predict(_slab(scan, third + 1 - MARGIN, 2 * third + MARGIN)).voxels
    high = predict(_slab(scan, 2 * third + 1 - MARGIN, scan.shape[2])).voxels
    thirds = low[..., :-MARGIN], middle[..., MARGIN - 1 : -MARGIN], high[..., MARGIN - 1 :]
    return np.concatenate(thirds, axis=2)


def _slab(scan: Volume, start: int, stop: int) -> Volume:
    affine = scan.affine.copy()
    affine[:3, 3] += start * affine[:3, 2]
    return Volume(scan.voxels[:, :, start:stop], affine, scan.source)
