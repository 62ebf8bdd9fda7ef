"""Pictures of a manifest as batches: which ones a fold trains on, rendered once.

Shape letters: N pictures, S side.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Bool, Int, UInt8
from ml_collections import ConfigDict
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path
from tumorchain_jax.ultrasound.folds import deal, test_part
from tumorchain_jax.ultrasound.lesion import MANIFEST, Lesion, read_manifest
from tumorchain_jax.ultrasound.view import View, render, render_mask

CLASSES = ("benign", "malignant")
"""A model's classes in order; a normal picture is of neither."""


@dataclass(frozen=True)
class Pictures:
    """Pictures of the two classes, rendered.

    Attributes:
        rows: of the manifest.
        images: what the model sees, before it is normalized.
        labels: numbers of `CLASSES`.
        is_test: of the test part, which is never trained on.
    """

    rows: Sequence[Lesion]
    images: UInt8[np.ndarray, "N S S"]
    labels: Int[np.ndarray, " N"]
    is_test: Bool[np.ndarray, " N"]

    @property
    def sources(self) -> np.ndarray:
        """The data set of each picture."""
        return np.array([row.source for row in self.rows])

    @property
    def clusters(self) -> list[str]:
        """The cluster of each picture, as a name."""
        return [str(row.cluster) for row in self.rows]


def load_pictures(config: ConfigDict, cache: Path) -> Pictures:
    """Read the manifest that a configuration names and render its pictures.

    Args:
        config: reads `data`.
        cache: folder for the rendered pictures.

    Raises:
        InputError: no folder is named, the manifest is malformed, or nothing is left of it.
    """
    data = config.data
    if not data.folder:
        hint = "make one with `tumorchain bus prepare`, and set config.data.folder"
        raise InputError("config", "data.folder", "none", "a prepared folder", hint)
    folder = Path(data.folder)
    wanted = {name for name in data.sources.split(",") if name}
    found = read_manifest(folder)
    rows = [row for row in found if row.label in CLASSES]
    known = {row.source for row in rows}
    for field, names in (("sources", wanted), ("held_out", {data.held_out} - {""})):
        if unknown := sorted(names - known):
            expected = f"some of {', '.join(sorted(known))}"
            raise InputError("config", f"data.{field}", unknown[0], expected, "change it")
    rows = [row for row in rows if not wanted or row.source in wanted]
    images = _rendered(render, folder, rows, data, cache)
    labels = np.array([CLASSES.index(row.label) for row in rows])
    return Pictures(rows, images, labels, test_part(rows))


def load_masks(config: ConfigDict, pictures: Pictures, cache: Path) -> UInt8[np.ndarray, "N S S"]:
    """The lesions' masks in the same view as the pictures: 255 inside.

    Raises:
        InputError: a picture has none.
    """
    return _rendered(render_mask, Path(config.data.folder), pictures.rows, config.data, cache)


def _rendered(
    show: Callable[[Path, Lesion, View, int], UInt8[np.ndarray, "S S"]],
    folder: Path,
    rows: Sequence[Lesion],
    data: ConfigDict,
    cache: Path,
) -> UInt8[np.ndarray, "N S S"]:
    """Views of all pictures or masks, from the cache if they are there."""
    view, side = data.view, data.side
    manifest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    key = json.dumps([show.__name__, manifest, view, side, [row.id for row in rows]])
    path = cache / f"pictures-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    if path.is_file():
        return np.load(path, mmap_mode="r")
    bar = tqdm(rows, desc="pictures", unit="picture", disable=None)
    images = np.stack([show(folder, row, cast(View, view), side) for row in bar])
    with atomic_path(path) as part:
        np.save(part, images)
    return images


def trained_on(pictures: Pictures, config: ConfigDict) -> Bool[np.ndarray, " N"]:
    """Which pictures a configuration trains on.

    Raises:
        InputError: there is no such fold, a fold lacks a class, or nothing is left.
    """
    data, chosen = config.data, ~pictures.is_test
    if data.held_out:
        chosen = chosen & (pictures.sources != data.held_out)
    if data.device:
        chosen = chosen & of_device(pictures, data.device)
    if data.fold != -1:
        chosen = chosen & (fold_of(pictures, config) != data.fold)
    if not chosen.any() or len(set(pictures.labels[chosen])) < len(CLASSES):
        found = f"{int(chosen.sum())} pictures of one class or none"
        raise InputError("config", "data", found, "pictures of both classes", "change the fold")
    return chosen


def of_device(pictures: Pictures, device: str) -> Bool[np.ndarray, " N"]:
    """Which pictures a device made, by a part of its name."""
    return np.array([device in row.device for row in pictures.rows], bool)


def style_references(pictures: Pictures, config: ConfigDict) -> Int[np.ndarray, " M"]:
    """Numbers of the pictures whose look training lends, see `config.py`."""
    data, development = config.data, ~pictures.is_test
    foreign = np.zeros(len(development), bool)
    if data.held_out:
        foreign |= pictures.sources == data.held_out
    if data.device:
        home = of_device(pictures, data.device)
        foreign |= np.isin(pictures.sources, pictures.sources[home]) & ~home
    foreign &= development
    return np.flatnonzero(foreign if foreign.any() else trained_on(pictures, config))


def fold_of(pictures: Pictures, config: ConfigDict) -> Int[np.ndarray, " N"]:
    """The fold of each picture of the development part; -1 for the test part.

    Raises:
        InputError: there is no such fold, or a fold lacks a class.
    """
    data = config.data
    if not (data.folds >= 2 and -1 <= data.fold < data.folds):
        found, expected = f"{data.fold} of {data.folds}", "one of two or more, from 0; or -1"
        raise InputError("config", "data.fold", found, expected, "change it")
    numbers = np.flatnonzero(~pictures.is_test)
    folds = np.full(len(pictures.rows), -1)
    own = [row for row, is_test in zip(pictures.rows, pictures.is_test, strict=True) if not is_test]
    folds[numbers] = deal(own, data.folds, data.fold_seed)
    return folds


def batches(
    count: int, size: int, rows: Sequence[int], seed: int, first_step: int
) -> Iterator[Int[np.ndarray, " B"]]:
    """Endless batches of picture numbers from a step on; a step's depend on seed and step alone.

    Every epoch goes through all pictures in an order of its own.

    Args:
        size: of a whole batch.
        rows: which of its rows are wanted.
    """
    step = first_step
    while True:
        turns = step * size + np.asarray(rows)
        orders = {
            int(epoch): np.random.default_rng([seed, int(epoch)]).permutation(count)
            for epoch in np.unique(turns // count)
        }
        yield np.array([orders[int(turn // count)][turn % count] for turn in turns])
        step += 1
