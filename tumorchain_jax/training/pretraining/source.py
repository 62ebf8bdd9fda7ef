"""Read the patches of training scans with auxiliary labels, for pretraining.

Shape letters: N patches of a scan, D H W voxels of it, p q r of a patch, S digestive organs,
F findings: these and the kinds of `phantoms/incidental.py`.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import grain
import numpy as np
from grain.sources import ArrayRecordDataSource

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.progress import progress
from tumorchain_jax.data.dataset import SUBSTRUCTURES, ModelScan, read_records, shard_paths
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE
from tumorchain_jax.reasoning.organ_cells import coverage
from tumorchain_jax.training.pretraining.curriculum import Curriculum

Patches = dict[str, np.ndarray]
"""`patches` (voxels `[N, p, q, r]`), `patch_index` (raster index of each) and the fields of
`PatchLabels` (`training/pretraining/loss.py`), the patches on the first axis."""

ORGAN_SHARE, TUMOUR_SHARE, OTHER_SHARE = 0.05, 0.08, 0.025
"""Smallest share of a patch that an organ, a tumour, or another finding must fill to count."""
HEALTHY_PATCHES, OTHER_PATCHES = 64, 16
"""How many patches without a finding are drawn from a scan: with a digestive organ, without."""
BATCH_SHARES = (0.35, 0.5, 0.15)
"""Shares of a batch: patches with a finding, healthy ones with a digestive organ, others."""
CONTENTS = ("nothing", "wall", "beyond the wall", "lymph node", "metastasis", "look-alike")
"""What a patch may hold; a tumour lies in the wall inside the organ's healthy mask alone."""
WALL, BEYOND, NODE_CONTENT, METASTASIS_CONTENT, LOOK_ALIKE_CONTENT = range(1, len(CONTENTS))
UNKNOWN = -1
"""Content of a patch that no loss counts."""


class TrainingScans:
    """The scans of `split.json`'s training patients by number, for grain."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        patients = read_split(folder)["train"]
        chosen = {record.scan for record in read_records(folder) if record.patient in patients}
        self.numbers = sorted(chosen)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> ModelScan:
        return ModelScan.from_bytes(self.scans[self.numbers[index]])


class CurriculumScans:
    """The scan in each place of the endless batches of a curriculum, for grain.

    Scans are drawn with replacement from those that the step admits; a draw depends on the seed and
    its place alone.
    """

    def __init__(self, scans: TrainingScans, curriculum: Curriculum, size: int, seed: int):
        self.scans, self.curriculum, self.size, self.seed = scans, curriculum, size, seed
        found = (lesion_mm(scans.folder, scans[index]) for index in range(len(scans)))
        self.lesion_mm = np.array(list(found))

    def __len__(self) -> int:
        return 2**31 - 1  # more than any run reads

    def __getitem__(self, index: int) -> ModelScan:
        chosen = np.flatnonzero(self.curriculum.admits(self.lesion_mm, index // self.size))
        rng = np.random.default_rng([self.seed, index])
        return self.scans[int(rng.choice(chosen))]


def lesion_mm(folder: Path, scan: ModelScan) -> float:
    """Diameter of the largest lesion of a scan; 0 without one.

    Raises:
        InputError: the data set was made before it was stored.
    """
    if not scan.lesion_mm.size:
        raise InputError(
            folder,
            "lesion_mm",
            "a scan without the size of its largest lesion",
            "sizes, for config.pretrain.curriculum",
            "make the data set again, or set --config.pretrain.curriculum.share=0",
        )
    return float(scan.lesion_mm[0])


class PatchLabelSource:
    """Labelled patches of the training patients' scans, in memory; batches of them by step.

    Args:
        crops: per scan, each shifted by up to half a patch.
        views: whether the crops around organs are read too, each as a scan of its own.
        curriculum: which scans' patches a step draws from; None for all.
        content: whether what patches hold is to be learned.

    Raises:
        InputError: the training scans have no lesions, so that there is nothing to learn, or not
            what the curriculum or the content needs.
    """

    def __init__(
        self,
        folder: Path,
        encoder: ViT3DConfig,
        crops: int,
        seed: int,
        views: bool = False,
        curriculum: Curriculum | None = None,
        content: bool = False,
    ):
        scans = TrainingScans(folder)
        drawn: list[Patches] = []
        sizes: list[float] = []
        lesions = False
        for index in progress(range(len(scans)), len(scans), "patches", "scans"):
            scan, rng = scans[index], np.random.default_rng([seed, index])
            lesions = lesions or bool(scan.lesions.any())
            read = scan.views() if views else [scan]
            of_scan = [
                draw_patches(cut_scan(view, encoder, rng), rng, len(read))
                for view in read
                for _ in range(crops)
            ]
            drawn += of_scan
            if curriculum:
                patches = sum(len(cut["organ"]) for cut in of_scan)
                sizes += [lesion_mm(folder, scan)] * patches
        if not lesions:
            raise InputError(
                folder,
                "lesion maps",
                f"no lesion in the {len(scans)} training scans",
                "some, to pretrain the encoder on",
                "name a pretrained model (--config.init), give lesion maps to `prepare`, or skip "
                "pretraining (--config.pretrain.patch_stage.steps=0)",
            )
        self.patches = {name: np.concatenate([crop[name] for crop in drawn]) for name in drawn[0]}
        if content and (self.patches["content"] == UNKNOWN).all():
            raise InputError(
                folder,
                "beyond",
                "no scan whose lesions are known inside and outside of the organ",
                "some, for config.pretrain.auxiliary.content",
                "make the phantoms again, or set --config.pretrain.auxiliary.content=0",
            )
        self.curriculum, self.lesion_mm = curriculum, np.array(sizes)
        ill, healthy = self.patches["found"].any(axis=1), self.patches["present"].any(axis=1)
        groups = ill, healthy & ~ill, ~healthy & ~ill
        self.groups = [np.flatnonzero(group) for group in groups]

    def batches(self, size: int, seed: int, first_step: int) -> Iterator[Patches]:
        """Endless batches from step `first_step` on; a step's depends on the seed and it alone."""
        step = first_step
        while True:
            rng = np.random.default_rng([seed, step])
            counts = [round(share * size) for share in BATCH_SHARES[1:]]
            counts = [size - sum(counts), *counts]
            groups = self._admitted(step)
            chosen = np.concatenate(
                [
                    group[rng.integers(len(group), size=count)]
                    for group, count in zip(groups, counts, strict=True)
                    if len(group)
                ]
            )
            chosen = np.resize(chosen, size)  # where a group is empty
            yield {field: values[chosen] for field, values in self.patches.items()}
            step += 1

    def _admitted(self, step: int) -> list[np.ndarray]:
        if self.curriculum is None or not self.curriculum.least_mm(step):
            return self.groups
        admitted = self.curriculum.admits(self.lesion_mm, step)
        return [group[admitted[group]] for group in self.groups]


def scan_batches(
    folder: Path,
    encoder: ViT3DConfig,
    size: int,
    seed: int,
    first_step: int,
    views: bool = False,
    curriculum: Curriculum | None = None,
) -> Iterator[Patches]:
    """Endless batches of whole scans from step `first_step` on, each randomly shifted.

    `volume` `[size, D, H, W]` and the labels of all its patches, `[size, N, ...]`.

    Args:
        views: whether a random one of a scan and its crops around organs takes its place.
        curriculum: which scans a step draws from; None for all, each once in an epoch.
    """

    def cut(scan: ModelScan, rng: np.random.Generator) -> Patches:
        if views:
            read = scan.views()
            scan = read[int(rng.integers(len(read)))]
        labelled = cut_scan(scan, encoder, rng)
        volume = _volume(labelled.pop("patches"), encoder.cells)
        del labelled["patch_index"]
        return {"volume": volume, **labelled}

    scans = TrainingScans(folder)
    if curriculum is None:
        dataset = grain.MapDataset.source(scans).seed(seed).shuffle().repeat()
    else:
        ordered = CurriculumScans(scans, curriculum, size, seed)
        dataset = grain.MapDataset.source(ordered).seed(seed)
    dataset = dataset.random_map(cut).batch(size, drop_remainder=True)
    return iter(dataset[first_step:].to_iter_dataset(grain.ReadOptions(num_threads=2)))


def cut_scan(scan: ModelScan, encoder: ViT3DConfig, rng: np.random.Generator) -> Patches:
    """Cut a scan, shifted by up to half a patch, into all its patches with their labels."""
    grid, patch = encoder.cells, encoder.patch
    reach = [size // 2 for size in patch]
    start = [int(rng.integers(2 * most + 1)) for most in reach]
    window = tuple(slice(at, at + n) for at, n in zip(start, encoder.image, strict=True))
    margin = [(most, most) for most in reach]

    def shift(volume: np.ndarray) -> np.ndarray:
        return np.pad(volume, margin, "edge")[window]

    maps = scan.image, scan.labels, scan.parts, scan.lesions, scan.others
    image, labels, parts, lesions, others = map(shift, maps)
    content = np.full(prod(grid), UNKNOWN, np.int32)
    if scan.beyond.size:
        content = _contents(lesions, shift(scan.beyond), others, grid)
    sites, kinds = list(DIGESTIVE), [METASTASIS, NODE, LOOK_ALIKE]
    organs, filled = coverage(labels, grid), coverage(parts, grid)[: len(SUBSTRUCTURES) + 1]
    tumour = coverage(labels * (lesions > 0), grid)[sites]
    found = np.concatenate([tumour, coverage(others, grid)[kinds]]).T
    enough = prod(patch) * np.repeat((TUMOUR_SHARE, OTHER_SHARE), (len(sites), len(kinds)))
    filled[0] = 0
    (d, p), (h, q), (w, r) = zip(grid, patch, strict=True)
    patches = image.reshape(d, p, h, q, w, r).transpose(0, 2, 4, 1, 3, 5).reshape(-1, p, q, r)
    return {
        "patches": patches,
        "patch_index": np.arange(len(patches), dtype=np.int32),
        "organ": organs.argmax(axis=0).astype(np.int32),
        "part": filled.argmax(axis=0).astype(np.int32),
        "present": ORGAN_SHARE * prod(patch) < organs[sites].T,
        "found": found > enough,
        "unsure": (found > 0) & (found <= enough),
        "centre": _centres(lesions, grid),
        "place": _places(grid),
        "content": content,
        "traits": np.tile(scan.traits[1:].astype(np.int32), (len(patches), 1)),
    }


def _volume(patches: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """The volume `[D, H, W]` of all patches `[N, p, q, r]` of a scan."""
    d, h, w = grid
    _, p, q, r = patches.shape
    blocks = patches.reshape(d, h, w, p, q, r).transpose(0, 3, 1, 4, 2, 5)
    return blocks.reshape(d * p, h * q, w * r)


def draw_patches(cut: Patches, rng: np.random.Generator, views: int = 1) -> Patches:
    """All patches of a scan that hold a finding, and some of the others.

    Args:
        views: of the patient, which share the number of the others.
    """
    ill, digestive = cut["found"].any(axis=1), cut["present"].any(axis=1)
    healthy, rest = (
        rng.permutation(np.flatnonzero(group)) for group in (digestive & ~ill, ~digestive & ~ill)
    )
    most = (-(-HEALTHY_PATCHES // views), -(-OTHER_PATCHES // views))
    chosen = np.concatenate([np.flatnonzero(ill), healthy[: most[0]], rest[: most[1]]])
    return {name: values[chosen] for name, values in cut.items()}


def _contents(
    lesions: np.ndarray, beyond: np.ndarray, others: np.ndarray, grid: tuple[int, int, int]
) -> np.ndarray:
    """Number what each patch holds among `CONTENTS`: int32 `[N]`.

    Of what fills enough of a patch the largest counts, but a tumour that also fills enough of it
    beyond the wall is beyond. `UNKNOWN` where only findings too small to count are.
    """
    held = np.zeros(4, np.uint8)
    held[[METASTASIS, NODE, LOOK_ALIKE]] = METASTASIS_CONTENT, NODE_CONTENT, LOOK_ALIKE_CONTENT
    filled = np.where(lesions > 0, np.where(beyond > 0, BEYOND, WALL), held[others])
    counts = coverage(filled, grid)[1 : len(CONTENTS)]
    shares = np.repeat((TUMOUR_SHARE, OTHER_SHARE), (2, len(CONTENTS) - 3))
    votes = np.where(counts > shares[:, None] * lesions.size / prod(grid), counts, 0)
    votes[WALL - 1] *= votes[BEYOND - 1] == 0
    small = np.where(counts.any(axis=0), UNKNOWN, 0)
    return np.where(votes.any(axis=0), votes.argmax(axis=0) + 1, small).astype(np.int32)


def _places(grid: tuple[int, int, int]) -> np.ndarray:
    """The position of each patch along D, H, W from -1 to 1: float32 `[N, 3]`."""
    index = np.moveaxis(np.indices(grid), 0, -1).reshape(-1, 3)
    return (2 * index / np.maximum(np.array(grid) - 1, 1) - 1).astype(np.float32)


def _centres(lesions: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """Whether each patch holds the centre of a lesion: bool `[N]`."""
    centres = np.zeros(grid, bool)
    index = np.argwhere(lesions)
    of = lesions[tuple(index.T)]
    for number in np.unique(of):
        middle = index[of == number].mean(axis=0)
        centres[tuple((middle * grid / lesions.shape).astype(int))] = True
    return centres.ravel()
