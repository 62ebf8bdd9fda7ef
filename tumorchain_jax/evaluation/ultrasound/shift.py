"""`tumorchain bus shift`: do classifiers carry over to a set or device that they were not shown?

Trained without a set, or on one device alone, and scored on what was left out, with and without
styles (`ultrasound/style.py`) as augmentation; differences are paired, picture by picture.

    WORKDIR/SEED/left_SET, left_SET_STYLE, DEVICE, DEVICE_STYLE    the trainings
    WORKDIR/shift.json, shift.txt                                 the table

The pictures that are scored also lend their looks, without their labels.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.auc import auroc, difference, estimates
from tumorchain_jax.evaluation.ultrasound.crossval import Run, of_seed, trained
from tumorchain_jax.training.classification.source import Pictures, load_pictures, of_device


class Shift(NamedTuple):
    """What is trained on, and what is scored.

    Attributes:
        name: in words.
        run: its training, without a style.
        scored: which pictures.
    """

    name: str
    run: Run
    scored: Bool[np.ndarray, " N"]


def shift(
    config: ConfigDict, workdir: Path, seeds: Sequence[int], styles: Sequence[str], device: str
) -> tuple[list[dict[str, Any]], str]:
    """Train and score every shift with every style; what is there already is not done again.

    Args:
        config: of the task `classification`.
        styles: beside none.
        device: part of the name of the device that is trained on alone.

    Returns:
        rows as plain values, and as text.

    Raises:
        InputError: the configuration or the data cannot be used, or there is nothing to carry to.
    """
    pictures = load_pictures(config, workdir / "cache")
    labels = pictures.labels == 1
    rows = []
    for change in _shifts(pictures, device):
        where = np.flatnonzero(change.scored)
        clusters = [pictures.clusters[number] for number in where]
        plain = None
        for style in ("", *styles):
            run = change.run._replace(style=style)
            run = run._replace(name=f"{run.name}_{style}" if style else run.name)
            scores = np.mean(
                [
                    trained(of_seed(config, seed), workdir, seed, run).scores(
                        pictures.images[where]
                    )
                    for seed in seeds
                ],
                axis=0,
            )
            area = estimates(labels[where], scores, clusters, {"auroc": auroc})["auroc"]
            plain = scores if plain is None else plain
            gain = difference(labels[where], scores, plain, clusters)
            rows.append(
                {
                    "shift": change.name,
                    "style": style or "none",
                    "n": len(where),
                    "malignant": int(labels[where].sum()),
                    "auroc": {"value": area.value, "ci95": list(area.ci95)},
                    "gain": {"value": gain.value, "ci95": list(gain.ci95)},
                }
            )
    if not rows:
        hint = "prepare several sets, or name another device"
        raise InputError(config.data.folder, "sets", "one", "another set or device", hint)
    said = text(rows)
    write_file(workdir / "shift.json", (json.dumps(rows, indent=1) + "\n").encode())
    write_file(workdir / "shift.txt", said.encode())
    return rows, said


def _shifts(pictures: Pictures, device: str) -> Iterator[Shift]:
    development, sources = ~pictures.is_test, pictures.sources
    names = sorted(set(sources))
    if len(names) > 1:
        for name in names:
            scored = development & (sources == name)
            yield Shift(f"without {name}", Run(f"left_{name}", held_out=str(name)), scored)
    home = of_device(pictures, device)
    scored = development & np.isin(sources, sources[home]) & ~home
    if len(set(pictures.labels[scored])) == 2:
        folder = "".join(each if each.isalnum() else "_" for each in device)
        yield Shift(f"{device} to others of its set", Run(folder, device=device), scored)


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table for people."""
    lines = [f"{'':28} {'style':10} {'AUROC':21} {'gain, paired':24} n"]
    for row in rows:
        shown = [
            f"{row[name]['value']:{sign}.3f} "
            f"[{row[name]['ci95'][0]:{sign}.3f}, {row[name]['ci95'][1]:{sign}.3f}]"
            for name, sign in (("auroc", ""), ("gain", "+"))
        ]
        lines.append(f"{row['shift']:28} {row['style']:10} {shown[0]} {shown[1]} {row['n']:4}")
    return "\n".join(lines) + "\n"
