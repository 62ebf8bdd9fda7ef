"""Sources of anatomy, and the drawing of one patient's anatomy from them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.body import Space, diaphragm, smooth_field
from tumorchain_jax.phantoms.deformation import Motion, draw_deformation
from tumorchain_jax.phantoms.field_of_view import (
    COLON,
    L3,
    SIDE_ROOM_MM,
    Frame,
    add_arms,
    crop_to_body,
    draw_ends,
    draw_spacing,
)
from tumorchain_jax.phantoms.hollow_organs import fill_hollow_organs
from tumorchain_jax.phantoms.label_maps import VOXEL_MM, fingerprint, read_label_maps
from tumorchain_jax.phantoms.template import LAYER_UNIT, Template, complete
from tumorchain_jax.phantoms.trunk_labels import (
    BODY_BOX,
    PROSTATE,
    TISSUE_OF_LABEL,
    draw_organs,
    draw_wall,
    organ_boxes,
    soft_tissue,
)

PARAMETRIC_ODDS = 0.4  # where there are label maps too
ARMS_ODDS, PRONE_ODDS = 0.15, 0.15
SIZE = 0.045  # standard deviation of the body's size, and of each axis besides
# Volumes (ml) that organs are drawn towards: median, spread of the logarithm.
ORGAN_ML = {
    1: (210, 0.4), 2: (165, 0.2), 3: (165, 0.2), 4: (30, 0.4), 5: (1500, 0.18), 6: (320, 0.4),
    7: (85, 0.25), 19: (70, 0.2), 21: (140, 0.5), 22: (28, 0.3), 51: (620, 0.2),
}  # fmt: skip
MOST_GROWTH = 0.25  # of the logarithm of a scale
FADING = 1.25  # makes up for a motion that fades towards an organ's border
LOG_GIRTH = (-0.05, 0.1)  # of the trunk around organs that do not grow with it: visceral fat
TRUNK_GROWTH = {1: 0.12}  # the diaphragm cuts off some of the trunk's spleen
BLOBS, BLOB_MM = 8, (25.0, 50.0)  # parts of the bowel that move on their own
# Thickness of the fat of the skin: factor, log-uniform, and its spread over the body.
FAT, FAT_SPREAD, FAT_KNOT_MM = (0.3, 1.4), 0.15, 110.0
MOST_UNEVEN = 0.3
TRUNK_FAT_MM = 15.0  # of the parametric trunk where that factor is 1
# Around the body in the slice: for its fat, and for what the deformation moves it.
THICKEST_FAT_MM, ROOM_MM = 30.0, 8.0


@dataclass(frozen=True)
class Sources:
    """Sources of anatomy.

    Attributes:
        templates: of the label maps; none: the parametric trunk alone.
        fingerprint: sha256 of the label maps and what describes them; empty without.
    """

    templates: tuple[Template, ...]
    fingerprint: str

    @property
    def phrase(self) -> str:
        """Say in a phrase what they are, for model cards."""
        if not self.templates:
            return "a parametric trunk"
        names = ", ".join(template.name for template in self.templates[:4])
        more = ", ..." if len(self.templates) > 4 else ""
        count = f"{len(self.templates)} label map{'s' * (len(self.templates) > 1)}"
        return f"a parametric trunk and {count} ({names}{more}; sha256 {self.fingerprint[:12]})"


def load_sources(folder: Path | None) -> Sources:
    """Load the label maps `*.nii.gz` of a folder; None: the parametric trunk alone.

    Raises:
        InputError: as `label_maps.read_label_maps`.
    """
    if folder is None:
        return Sources((), "")
    templates = tuple(complete(label_map) for label_map in read_label_maps(folder))
    return Sources(templates, fingerprint(folder))


@dataclass(frozen=True)
class _Shown:
    """What a source shows at the voxels of a grid: arrays as of `Template`."""

    labels: UInt8[np.ndarray, "I J K"]
    tissue: UInt8[np.ndarray, "I J K"]
    layer: np.ndarray
    inner: UInt8[np.ndarray, "I J K"]
    female: bool | None


def draw_anatomy(rng: np.random.Generator, sources: Sources) -> Anatomy:
    """Draw a patient's anatomy: the same state of `rng` and sources give the same voxels.

    The source's organs are scaled, moved and bent one by one, and the whole, by one deformation
    without folds. Body size, fat of the skin, ends of the scan, voxel size, arms, position, and
    what hollow organs hold are drawn too. Left and right are never exchanged.
    """
    parametric = rng.random() < PARAMETRIC_ODDS or not sources.templates
    template = None if parametric else sources.templates[rng.integers(len(sources.templates))]
    frame = _TRUNK if template is None else Frame(*template.body, template.boxes)
    prone, arms = bool(rng.random() < PRONE_ODDS), bool(rng.random() < ARMS_ODDS)
    fat = float(np.exp(rng.uniform(*np.log(FAT))))
    size = rng.normal(1, SIZE, 3).clip(0.94, 1.06) * rng.normal(1, SIZE, 1).clip(0.92, 1.08)
    size[1] *= rng.uniform(0.9, 1.0) if prone else 1.0  # the belly is pressed flat
    girth = float(np.exp(rng.uniform(*LOG_GIRTH)))
    size[:2] *= girth
    first, last = draw_ends(rng, frame)
    low, high = (
        corner + side * np.array([fat * THICKEST_FAT_MM + ROOM_MM] * 2 + [0.0])
        for corner, side in ((frame.low, -1), (frame.high, 1))
    )
    low[2], high[2] = first, last
    beside = np.array([SIDE_ROOM_MM * arms, 0, 0])
    spacing = draw_spacing(rng, (high - low + 2 * beside) * size)
    axes = [
        np.arange(a, b, s / f)
        for a, b, s, f in zip(low - beside, high + beside, spacing, size, strict=True)
    ]
    deformation = draw_deformation(rng, low, high, _motions(rng, frame, template, size, girth))
    x, y, z = deformation(axes)
    if template is None:
        origin = np.array([axis[0] for axis in axes])
        space = Space(x, y, z, origin, spacing / size, deformation.largest)
        shown = _show_trunk(rng, space)
    else:
        shown = _show_template(template, x, y, z)
    uneven = np.float32(FAT_SPREAD) * smooth_field(rng, x.shape, spacing, FAT_KNOT_MM)
    skin = np.float32(fat / LAYER_UNIT) * (1 + uneven.clip(-MOST_UNEVEN, MOST_UNEVEN))
    labels, tissue = shown.labels, shown.tissue
    tissue[(tissue == Tissue.OUTSIDE) & (shown.layer < skin)] = Tissue.SKIN_FAT
    if arms:
        elbow = frame.end((L3,), True, (frame.low[2] + frame.high[2]) / 2) + rng.uniform(-30, 40)
        add_arms(rng, labels, tissue, spacing, (elbow - first) * size[2])
    view = crop_to_body(rng, tissue > 0, spacing)
    labels, tissue, inner = (
        np.ascontiguousarray(array[view]) for array in (labels, tissue, shown.inner)
    )
    fill_hollow_organs(rng, labels, tissue, inner, spacing, prone)
    affine = np.diag([*spacing, 1.0])
    start = [view[0].start, view[1].start, 0]
    affine[:3, 3] = low * size + spacing * start + rng.uniform(-40, 40, 3) + (0, 100, 250)
    source = "a parametric trunk"
    if template is not None:
        source = f"the label map {template.name}, completed by a parametric trunk"
    return Anatomy(labels, tissue, affine, source, prone, shown.female)


_TRUNK = Frame(*BODY_BOX, organ_boxes())


def _motions(
    rng: np.random.Generator,
    frame: Frame,
    template: Template | None,
    size: Float[np.ndarray, "3"],
    girth: float,
) -> list[Motion]:
    """Draw how organs and parts of the bowel move; a label map's towards usual volumes.

    Organs do not grow with the girth, so that the fat around them does.
    """
    motions, slimmer = [], np.array([-np.log(girth), -np.log(girth), 0.0])
    for label, (median, spread) in ORGAN_ML.items():
        factor = spread * rng.normal()
        if label not in frame.boxes:
            continue
        low, high = frame.boxes[label]
        growth = slimmer + TRUNK_GROWTH.get(label, 0.0)
        if template is not None:
            now = np.log(template.volumes_ml[label] * size.prod())
            wanted = FADING * (np.log(median) + factor - now) / 3
            growth = np.full(3, np.clip(wanted, -MOST_GROWTH, MOST_GROWTH))
        motions.append(Motion((low + high) / 2, (high - low) / 2, growth))
    bowel = frame.boxes.get(COLON)
    if bowel is not None:
        for _ in range(BLOBS):
            centre, half = rng.uniform(*bowel), np.full(3, rng.uniform(*BLOB_MM))
            motions.append(Motion(centre, half, slimmer, spread=1.5))
    return motions


def _show_template(template: Template, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> _Shown:
    """Look up the nearest voxel of a template; beyond its border the one there."""
    index = np.zeros(x.shape, np.int32)
    for coordinate, count in zip((x, y, z), template.labels.shape, strict=True):
        nearest = np.rint(coordinate * np.float32(1 / VOXEL_MM)).clip(0, count - 1)
        index = index * count + nearest.astype(np.int32)
    return _Shown(
        template.labels.ravel()[index],
        template.tissue.ravel()[index],
        template.layer.ravel()[index],
        template.inner.ravel()[index],
        template.female,
    )


def _show_trunk(rng: np.random.Generator, space: Space) -> _Shown:
    """Draw the parametric trunk of a man or a woman."""
    female = bool(rng.random() < 0.5)
    wall = draw_wall(rng, space)
    labels = np.zeros(space.x.shape, np.uint8)
    above = space.z > diaphragm(space) + np.float32(rng.uniform(-8, 8))
    skip = frozenset({PROSTATE} if female else ())
    inner = draw_organs(rng, space, wall, above, labels, skip)
    tissue = np.where(labels > 0, TISSUE_OF_LABEL[labels], soft_tissue(space, wall))
    layer = wall.within_fat * np.float32(-1 / (LAYER_UNIT * TRUNK_FAT_MM))
    return _Shown(labels, tissue, layer, inner, female)
