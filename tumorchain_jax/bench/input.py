"""Benchmark of the input pipeline against MONAI: raw scans, and preprocessed scans.

The names of the values say what is compared. Both sides have one thread; seconds are CPU time, so
other processes do not matter; all files are in the system's cache.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import grain
import nibabel as nib
import numpy as np
from grain.sources import ArrayRecordDataSource
from tqdm import tqdm

from tumorchain_jax.bench.timing import REPEATS
from tumorchain_jax.bench.transformers_models import require
from tumorchain_jax.data.dataset import ModelScan, shard_paths
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.scan.preprocess import (
    BODY_HU,
    BODY_SEARCH_MM,
    PreprocessConfig,
    preprocess,
)
from tumorchain_jax.scan.read import read_ct

FIRST_SEED = 7_000_000
BATCH_SIZE = 4
VOCAB_SIZE = 1024
FINE = (4, 4, 2)
"""Voxels of a clinical CT, 0.8 x 0.8 x 1.5 mm or so, in one of a digital patient's."""
FINE_NOISE_HU = 6.0
MAPS = ("image", "labels", "parts", "lesions", "others")


def bench_input(
    config: PreprocessConfig | None = None,
    patients: int = 8,
    fine_patients: int = 2,
    fine: tuple[int, int, int] = FINE,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """Measure volumes a second on one core, medians, in turns; and the speedups.

    Raw scans: `ct.nii.gz` to the model's float32 array, by `read_ct` and `preprocess`, and by
    MONAI's transforms, configured to do the same: read, orient, crop to the body, window,
    pad to a square, resize (trilinear). The arrays are compared too. The scans are digital
    patients, with their own coarse voxels and with voxels as fine as a clinical CT's.

    Preprocessed scans: batches of the same arrays, image and four maps, uint8; by grain from
    ArrayRecord, as training reads, and by MONAI's DataLoader from its PersistentDataset.

    Args:
        fine_patients: of the patients, that are also read with fine voxels.
        fine: how many voxels each is cut into.

    Raises:
        InputError: PyTorch or MONAI is not installed.
    """
    require("torch", "monai", "einops")
    config = config or PreprocessConfig()
    with TemporaryDirectory() as scratch, _one_thread():
        folder = Path(scratch)
        files = [
            write_patient(make_patient(FIRST_SEED + n), folder / str(n))[0] for n in range(patients)
        ]
        fine_files = [_write_fine(file, fine) for file in files[:fine_patients]]
        write_phantoms(folder / "data", FIRST_SEED, patients, config, VOCAB_SIZE, processes=1)
        transforms = _monai_transforms(config)
        apart = [
            np.abs(preprocess(read_ct(file), config).image - transforms(file).numpy()).max()
            for file in files + fine_files
        ]
        values = {"voxels apart, at most": float(max(apart))}
        for size, some in {"phantom": files, "phantom of a CT's size": fine_files}.items():
            rates = _volumes_per_second(
                partial(_prepare_all, some, config),
                partial(_transform_all, some, transforms),
                len(some),
                repeats,
            )
            values |= _named(f"{size}, .nii.gz to array", "MONAI", rates)
        rates = _volumes_per_second(
            partial(_drain, _grain_batches(folder / "data")),
            partial(_drain, _monai_batches(folder / "data", folder / "cache")),
            patients,
            repeats,
        )
    return values | _named("preprocessed, in batches", "MONAI's PersistentDataset", rates)


def _write_fine(file: Path, parts: tuple[int, int, int]) -> Path:
    """Write the same scan with each voxel cut into parts, each with its own noise."""
    ct = read_ct(file)
    cut = np.diag([*(1 / n for n in parts), 1.0])
    cut[:3, 3] = [(1 / n - 1) / 2 for n in parts]
    voxels = np.kron(ct.voxels, np.ones(parts, np.float32))
    voxels += FINE_NOISE_HU * np.random.default_rng(0).standard_normal(voxels.shape, np.float32)
    image = nib.Nifti1Image(np.rint(voxels).astype(np.int16), ct.affine @ cut)
    image.header.set_xyzt_units("mm")
    path = file.with_name("fine.nii.gz")
    nib.save(image, path)
    return path


def _prepare_all(files: Sequence[Path], config: PreprocessConfig) -> None:
    for file in files:
        preprocess(read_ct(file), config)


def _transform_all(files: Sequence[Path], transforms: Any) -> None:
    for file in files:
        transforms(file)


def _named(what: str, reference: str, rates: tuple[float, float]) -> dict[str, float]:
    return {
        f"{what}, volumes/s/core": rates[0],
        f"{what}, by {reference}, volumes/s/core": rates[1],
        f"{what}, speedup": rates[0] / rates[1],
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _volumes_per_second(
    ours: Callable[[], Any], reference: Callable[[], Any], volumes: int, repeats: int
) -> tuple[float, float]:
    """Volumes a second of both, in turns, after one warm-up call each."""
    ours()
    reference()
    rounds = [
        (_cpu_seconds(ours), _cpu_seconds(reference)) for _ in tqdm(range(repeats), disable=None)
    ]
    our_s, reference_s = map(median, zip(*rounds, strict=True))
    return volumes / our_s, volumes / reference_s


def _cpu_seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _drain(batches: Any) -> None:
    for _ in batches:
        pass


def _grain_batches(data: Path) -> Any:
    """One epoch, in order."""
    source = ArrayRecordDataSource(shard_paths(data, "scans"))
    scans = grain.MapDataset.source(source).map(_maps).batch(BATCH_SIZE)
    return scans.to_iter_dataset(grain.ReadOptions(num_threads=0))


def _maps(blob: bytes) -> dict[str, np.ndarray]:
    scan = ModelScan.from_bytes(blob)
    return {name: getattr(scan, name) for name in MAPS}


def _monai_transforms(config: PreprocessConfig) -> Any:
    from monai import transforms

    low, high = config.level - config.width / 2, config.level + config.width / 2
    return transforms.Compose(
        [
            transforms.LoadImage(image_only=True),
            transforms.EnsureChannelFirst(),
            transforms.Orientation("SPL"),
            transforms.Lambda(_cropped_to_body),
            transforms.ScaleIntensityRange(low, high, 0.0, 1.0, clip=True),
            transforms.Lambda(_padded_to_square),
            transforms.Resize(config.grid, mode="trilinear"),
            transforms.SqueezeDim(0),
            transforms.EnsureType(track_meta=False),
        ]
    )


def _cropped_to_body(scan: Any) -> Any:
    """Crop to the box of all that is denser than air, searched as coarsely as ours.

    A digital patient lies on no table, so the largest connected part is all there is.
    """
    from monai.transforms import SpatialCrop
    from monai.transforms.utils import generate_spatial_bounding_box

    steps = [max(1, round(BODY_SEARCH_MM / float(mm))) for mm in scan.pixdim]
    a, b, c = steps
    coarse = scan.as_tensor()[:, ::a, ::b, ::c]
    box = generate_spatial_bounding_box(coarse, lambda hu: hu > BODY_HU, allow_smaller=True)
    starts = [max(0, (edge - 1) * step) for edge, step in zip(box[0], steps, strict=True)]
    stops = [edge * step + 1 for edge, step in zip(box[1], steps, strict=True)]
    return SpatialCrop(roi_start=starts, roi_end=stops)(scan)


def _padded_to_square(scan: Any) -> Any:
    """Pad in-plane, where a digital patient's voxels are square."""
    from monai.transforms import SpatialPad

    side = max(scan.shape[2:])
    return SpatialPad((-1, side, side))(scan)


def _monai_batches(data: Path, cache: Path) -> Any:
    """One epoch, in order; the cache is filled by the first."""
    import torch
    from monai.data import DataLoader, PersistentDataset
    from monai.transforms import Lambda

    source = ArrayRecordDataSource(shard_paths(data, "scans"))

    def tensors(index: int) -> dict[str, Any]:
        maps = _maps(source[index])
        return {name: torch.from_numpy(array.copy()) for name, array in maps.items()}

    dataset = PersistentDataset(range(len(source)), Lambda(tensors), cache)
    return DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=0)
