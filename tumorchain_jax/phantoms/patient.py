"""Digital patients: CT scans drawn from a seed, with disease whose truth is known exactly.

A patient of the simple kind has a simplified trunk (`phantoms/body.py`); one of the realistic kind
an anatomy of several sources, imaged by domain randomisation (`phantoms/imaging.py`). Both may have
a tumour in one digestive organ (`phantoms/lesions.py`), enlarged nodes, metastases, and benign
findings that look like a tumour (`phantoms/incidental.py`). The truth is measured on the painted
voxels, after clipping; it is never the plan.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER, ORGANS
from tumorchain_jax.anatomy.staging import Extent, stage
from tumorchain_jax.anatomy.substructures import segment_map
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path, write_file
from tumorchain_jax.phantoms.anatomy import Tissue
from tumorchain_jax.phantoms.body import FAT_HU, PHASES, Body, draw_space, draw_trunk
from tumorchain_jax.phantoms.imaging import paint_tissues
from tumorchain_jax.phantoms.incidental import (
    LUNGS,
    METASTASIS,
    NODE,
    Finding,
    IncidentalPainter,
    box_around,
)
from tumorchain_jax.phantoms.lesions import (
    DEPTHS,
    FEWEST_VOXELS,
    SIMPLE_STYLE,
    Lesion,
    LesionPainter,
    LesionStyle,
    Plan,
    draw_plan,
    noise,
)
from tumorchain_jax.phantoms.realistic_findings import RealisticFindings
from tumorchain_jax.phantoms.realistic_lesions import (
    REALISTIC_STYLE,
    TEXTURE_SHARE,
    draw_realistic_plan,
)
from tumorchain_jax.phantoms.scanner import scan
from tumorchain_jax.phantoms.settings import CONSPICUOUS, SIMPLE, SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.phantoms.sources import Sources, draw_anatomy
from tumorchain_jax.phantoms.tissue import draw_tissue_hu
from tumorchain_jax.scan.volume import Volume

PREVALENCE = 0.8
# An organ of which the scan shows less gets no tumour.
SHOWN_ML = {5: 300.0, 7: 25.0, 6: 60.0, 20: 100.0, 15: 8.0}
SURROUNDINGS_MM = 30.0


@dataclass(frozen=True)
class Patient:
    """A CT, its organs, and the truth about its findings.

    Attributes:
        ct: HU, float32 whole numbers.
        labels: uint8 TotalSegmentator v2 ids; a lesion's voxels keep their organ's id.
        lesions: the tumour, all in one organ; empty where there is none.
        seed: seed of everything that was drawn.
        synthetic: one sentence that says what is synthetic.
        lesion_map: uint8; 0 outside, n in the n-th of `lesions`.
        other_map: uint8; METASTASIS, NODE or LOOK_ALIKE, else 0.
        findings: the findings that `other_map` shows.
        beyond_map: uint8; 1 where a lesion lies outside the organ's healthy mask, else 0. None
            where the truth of a scan is not complete, as in a real CT.
        body: of a digital patient; None for a real CT.
        anatomy: what the organs of a realistic patient come from.
    """

    ct: Volume
    labels: Volume
    lesions: tuple[Lesion, ...]
    seed: int
    synthetic: str
    lesion_map: Volume
    other_map: Volume
    findings: tuple[Finding, ...] = ()
    body: Body | None = None
    anatomy: str = ""
    beyond_map: Volume | None = None

    @property
    def extent(self) -> Extent | None:
        """Findings that decide the stage; None without a tumour, or in a real CT."""
        if not self.lesions or self.body is None:
            return None
        depths = [lesion.depth for lesion in self.lesions if lesion.depth is not None]
        return Extent(
            self.lesions[0].organ,
            tuple(lesion.diameter_mm for lesion in self.lesions),
            max(depths, key=DEPTHS.index) if depths else "wall",
            nodes=sum(finding.kind == NODE for finding in self.findings),
            metastases=frozenset(
                LUNGS[0] if finding.organ in LUNGS else finding.organ  # one site
                for finding in self.findings
                if finding.kind == METASTASIS
            ),
        )


def make_patient(seed: int, settings: PatientSettings = SIMPLE_PATIENTS) -> Patient:
    """Make a digital patient; the same seed and settings give the same bytes.

    Raises:
        InputError: the settings name a folder of label maps that cannot be used.
    """
    kind = settings.kind_of(seed)
    if kind != SIMPLE:
        return _realistic_patient(seed, settings.sources(), kind == CONSPICUOUS)
    rng = np.random.default_rng(seed)
    ill = rng.random() < PREVALENCE
    body = Body(
        str(rng.choice(PHASES)), cirrhosis=rng.random() < 0.15, swelling=rng.random() < 0.12
    )
    space, affine = draw_space(rng)
    spacing = affine.diagonal()[:3]
    sharp, labels, hu = draw_trunk(rng, space, spacing, body)
    fat = (labels == 0) & (sharp == FAT_HU)
    # The scanner's in-plane blur; through-plane the voxels are thick already.
    image = ndimage.gaussian_filter(sharp, (0.5, 0.5, 0), truncate=3)
    source = f"digital patient {seed}"
    lesion_map = np.zeros_like(labels)
    lesions: tuple[Lesion, ...] = ()
    beyond = np.zeros_like(labels)
    shown = _shown(labels, spacing)
    if ill and shown:
        plan = draw_plan(rng, shown)
        args = image, labels, fat, affine, lesion_map
        lesions, beyond = _paint(rng, plan, *args, hu[plan.organ], 0.0)
    others = IncidentalPainter(rng, image, labels, fat & (lesion_map == 0), lesion_map, affine)
    if lesions:
        others.nodes(lesions[0].organ)
        others.metastases(lesions[0].organ, hu[5])
    others.look_alikes()
    image += rng.uniform(8, 20) * noise(rng, image.shape)
    return Patient(
        Volume(np.rint(image).clip(-1024, 3071), affine, source),
        Volume(labels, affine, source),
        lesions,
        seed,
        "Everything is made up: anatomy, densities, noise and findings are drawn from the seed.",
        Volume(lesion_map, affine, source),
        Volume(others.other_map, affine, source),
        tuple(others.findings),
        body,
        beyond_map=Volume(beyond, affine, source),
    )


def _shown(labels: np.ndarray, spacing: np.ndarray) -> tuple[int, ...]:
    """Return the digestive organs of which the scan shows enough for a tumour."""
    ml = np.bincount(labels.ravel(), minlength=118) * spacing.prod() / 1000
    return tuple(organ for organ, least in SHOWN_ML.items() if ml[organ] >= least)


def _realistic_patient(seed: int, sources: Sources, conspicuous: bool) -> Patient:
    """Make a patient of drawn anatomy; if `conspicuous`, with tumours of the simple kind."""
    rng = np.random.default_rng(seed)
    ill = rng.random() < PREVALENCE
    anatomy = draw_anatomy(rng, sources)
    labels, affine, name = anatomy.labels.copy(), anatomy.affine, f"digital patient {seed}"
    hu = draw_tissue_hu(rng)
    image = paint_tissues(rng, anatomy, hu)
    fat = (labels == 0) & (anatomy.tissue == Tissue.FAT)
    lesion_map = np.zeros_like(labels)
    lesions: tuple[Lesion, ...] = ()
    beyond = np.zeros_like(labels)
    shown = _shown(labels, affine.diagonal()[:3])
    if ill and shown:
        means = {organ: float(hu.mean[organ]) for organ in shown}
        plan = draw_plan(rng, shown) if conspicuous else draw_realistic_plan(rng, shown, means)
        texture = rng.uniform(*TEXTURE_SHARE) * abs(plan.contrast_hu)
        style = SIMPLE_STYLE if conspicuous else REALISTIC_STYLE
        args = image, labels, fat, affine, lesion_map, means[plan.organ], texture, style
        lesions, beyond = _paint(rng, plan, *args)
    fat &= lesion_map == 0
    others = RealisticFindings(rng, image, labels, fat, lesion_map, affine, hu)
    if lesions:
        others.nodes(lesions[0].organ)
        others.metastases(lesions[0].organ, float(hu.mean[LIVER]))
    others.normal_nodes()
    others.look_alikes()
    return Patient(
        Volume(scan(rng, image, anatomy), affine, name),
        Volume(labels, affine, name),
        lesions,
        seed,
        f"The image and its findings are made up, drawn from the seed; anatomy: {anatomy.source}.",
        Volume(lesion_map, affine, name),
        Volume(others.other_map, affine, name),
        tuple(others.findings),
        Body(hu.phase, cirrhosis=False, swelling=False),
        anatomy.source,
        Volume(beyond, affine, name),
    )


def paint_lesion(ct: Volume, labels: Volume, seed: int, organ: int | None = None) -> Patient:
    """Paint synthetic lesions into one of the digestive organs of a real CT.

    Voxels outside the organ's own mask are not changed.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 `total` ids on the same grid.
        seed: seed of the lesions.
        organ: a digestive organ's id; None: one of those present is drawn.

    Raises:
        InputError: the grids differ, or there is no digestive organ with room for a lesion.
    """
    if ct.shape != labels.shape or not np.allclose(ct.affine, labels.affine, atol=1e-3):
        raise InputError(
            labels.source, "grid", f"{labels.shape}", f"the CT's {ct.shape} and its affine",
            "give the mask of this very CT",
        )  # fmt: skip
    sizes = {o: np.count_nonzero(labels.voxels == o) for o in DIGESTIVE}
    present = tuple(
        o for o, size in sizes.items() if size >= 10 * FEWEST_VOXELS and organ in (None, o)
    )
    if not present:
        wanted = "one of them"
        if organ is not None:
            wanted = ORGANS[organ] if organ in DIGESTIVE else f"one of them, not {organ}"
        found = ", ".join(f"{size} voxels of {ORGANS[o]}" for o, size in sizes.items())
        raise InputError(
            labels.source, "organ", found,
            f"{10 * FEWEST_VOXELS} or more of {wanted}",
            "choose another organ, or a mask with TotalSegmentator v2 ids",
        )  # fmt: skip
    rng = np.random.default_rng([seed, 2])
    plan = draw_plan(rng, present)
    own = labels.voxels == plan.organ
    image = ct.voxels.astype(np.float32)
    # Soft tissue alone: a mask of a hollow organ holds gas, and a coarse mask holds fat.
    soft = image[own & (image > 0) & (image < 250)]
    organ_hu = float(np.median(soft)) if soft.size else 40.0
    noise_hu = float(1.48 * np.median(np.abs(soft - organ_hu))) if soft.size else 15.0
    lesion_map = np.zeros(ct.shape, np.uint8)
    ids = labels.voxels.astype(np.uint8)
    lesions, _ = _paint(
        rng, plan, image, ids, np.zeros_like(own), ct.affine, lesion_map, organ_hu, noise_hu
    )
    if not lesions:
        raise InputError(
            labels.source, "organ", f"{ORGANS[plan.organ]} too thin for a lesion",
            f"room for {FEWEST_VOXELS} voxels", "choose another organ",
        )  # fmt: skip
    return Patient(
        Volume(image, ct.affine, ct.source),
        Volume(ids, labels.affine, labels.source),
        lesions,
        seed,
        f"The CT and its organs are real ({Path(ct.source).name}); the lesions are made up.",
        Volume(lesion_map, ct.affine, labels.source),
        Volume(np.zeros_like(ids), ct.affine, labels.source),
    )


def _paint(
    rng: np.random.Generator,
    plan: Plan,
    image: np.ndarray,
    labels: np.ndarray,
    fat: np.ndarray,
    affine: np.ndarray,
    lesion_map: np.ndarray,
    organ_hu: float,
    noise_hu: float,
    style: LesionStyle = SIMPLE_STYLE,
) -> tuple[tuple[Lesion, ...], np.ndarray]:
    """Paint a plan's lesions into `image`, `labels` and `lesion_map`, in place.

    Returns:
        The lesions, and their voxels outside the organ as it was, uint8.
    """
    own = labels == plan.organ
    segments = segment_map(Volume(labels, affine, "labels"), plan.organ)
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    box = box_around(own, SURROUNDINGS_MM, spacing)  # distances of the whole trunk take long
    here = affine.copy()
    here[:3, 3] += affine[:3, :3] @ [s.start for s in box]
    painter = LesionPainter(
        rng, image[box], own[box], fat[box], here, lesion_map[box], segments[box], style
    )
    lesions = painter.paint(plan, organ_hu, noise_hu)
    labels[lesion_map > 0] = plan.organ
    return lesions, ((lesion_map > 0) & ~own).astype(np.uint8)


def write_patient(patient: Patient, folder: Path) -> tuple[Path, Path]:
    """Write ct.nii.gz (int16), labels, lesions and others (uint8) and, last of all, truth.json.

    Each file appears whole or not at all. Returns the paths of the CT and of the labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = (
        ("ct.nii.gz", patient.ct, np.int16),
        ("labels.nii.gz", patient.labels, np.uint8),
        ("lesions.nii.gz", patient.lesion_map, np.uint8),
        ("others.nii.gz", patient.other_map, np.uint8),
    )
    for name, volume, dtype in files:
        image = nib.Nifti1Image(np.rint(volume.voxels).astype(dtype), volume.affine)
        image.header.set_xyzt_units("mm")
        with atomic_path(folder / name) as part:
            nib.save(image, part)
    write_file(folder / "truth.json", (json.dumps(truth(patient), indent=2) + "\n").encode())
    return folder / "ct.nii.gz", folder / "labels.nii.gz"


def truth(patient: Patient) -> dict[str, object]:
    """Return the structured report: all that is known of a patient."""
    extent = patient.extent
    lesions = [asdict(lesion) | {"size": lesion.size} for lesion in patient.lesions]
    for lesion in lesions if not patient.anatomy else []:  # as older versions wrote them
        del lesion["contrast_hu"], lesion["size_limits_mm"]
    return {
        "synthetic": patient.synthetic,
        "seed": patient.seed,
        "body": asdict(patient.body) if patient.body else None,
        "lesions": lesions,
        "findings": [asdict(finding) for finding in patient.findings],
        "stage": stage(extent) if extent else None,
        **({"anatomy": patient.anatomy} if patient.anatomy else {}),
    }
