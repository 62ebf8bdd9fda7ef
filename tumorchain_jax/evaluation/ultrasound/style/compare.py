"""`tumorchain bus style`: change pictures of one look to another by several methods, and measure.

Every number is of pictures that no method and no classifier was fitted on: those of the fold that a
translation left out. What is printed beside the methods: `none`, the pictures as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, UInt8
from ml_collections import ConfigDict
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.evaluation.auc import auroc, difference, estimates
from tumorchain_jax.evaluation.ultrasound.classifier import Classifier
from tumorchain_jax.evaluation.ultrasound.style.features import random_network, spectrum
from tumorchain_jax.evaluation.ultrasound.style.measures import (
    box_in_view,
    device_classifier,
    hidden_information,
    kernel_distance,
    overlaps,
    standardized,
)
from tumorchain_jax.models.translation.model import Generator, TranslationConfig
from tumorchain_jax.training.classification.source import Pictures, fold_of
from tumorchain_jax.training.translation.train import looks, of_look
from tumorchain_jax.ultrasound.lesion import Lesion
from tumorchain_jax.ultrasound.style import STYLES, Style
from tumorchain_jax.ultrasound.view import square
from tumorchain_jax.weights.classifier_folder import load_classifier
from tumorchain_jax.weights.translation_folder import BACK, FORTH, load_translation

FEATURES: Mapping[str, Callable[[UInt8[np.ndarray, "N S S"]], Float[np.ndarray, "N F"]]] = {
    "random network": random_network,
    "spectrum": spectrum,
}
BATCH, COLUMNS = 8, 8


@dataclass(frozen=True)
class Translator:
    """A trained translation behind the interface of every style; references are not looked at."""

    model: TranslationConfig
    ways: Mapping[str, Mapping[str, np.ndarray]]

    def __call__(
        self, pictures: UInt8[np.ndarray, "N S S"], references: UInt8[np.ndarray, "N S S"]
    ) -> UInt8[np.ndarray, "N S S"]:
        """Translate 8-bit pictures."""
        return np.rint(self.way(FORTH, pictures / 255) * 255).astype(np.uint8)

    def way(self, name: str, images: Float[np.ndarray, "N S S"]) -> Float[np.ndarray, "N S S"]:
        """Translate grey values from 0 to 1, one way or the other."""
        params, found = unflatten(self.ways[name]), []
        for start in range(0, len(images), BATCH):
            part = images[start : start + BATCH]
            filled = np.zeros((BATCH, *part.shape[1:]), np.float32)
            filled[: len(part)] = part
            found.append(np.asarray(_run(self.model, params, filled))[: len(part)])
        return np.concatenate(found).astype(float)


@partial(jax.jit, static_argnums=0)
def _run(model: TranslationConfig, params: Any, images: Any) -> Any:
    out = Generator(model).apply({"params": params}, images[..., None] * 2 - 1)[0]
    return (jnp.clip(out[..., 0], -1, 1) + 1) / 2


@dataclass(frozen=True)
class Looks:
    """Pictures of two looks, those that were trained on and those that were held out."""

    train_a: UInt8[np.ndarray, "N S S"]
    train_b: UInt8[np.ndarray, "M S S"]
    held_a: UInt8[np.ndarray, "K S S"]
    held_b: UInt8[np.ndarray, "L S S"]
    rows: Sequence[Lesion]
    """Of `held_a`."""

    @property
    def labels(self) -> Bool[np.ndarray, " K"]:
        """Which of `held_a` are malignant."""
        return np.array([row.label == "malignant" for row in self.rows], bool)


def split_looks(pictures: Pictures, config: ConfigDict) -> Looks:
    """The parts of two looks by a configuration's fold.

    Raises:
        InputError: a part has too few pictures.
    """
    trained = looks(pictures, config)
    held = fold_of(pictures, config) == config.data.fold
    images = pictures.images
    of_a, of_b = (of_look(pictures, config.data[name]) & held for name in ("a", "b"))
    for name, which in (("a", of_a), ("b", of_b)):
        if which.sum() < 4:
            found = f"{int(which.sum())} held-out pictures of {config.data[name]}"
            raise InputError("config", f"data.{name}", found, "4 or more", "use fewer folds")
    rows = [pictures.rows[int(number)] for number in np.flatnonzero(of_a)]
    return Looks(images[trained["a"]], images[trained["b"]], images[of_a], images[of_b], rows)


def compare(
    own: Looks, methods: Mapping[str, Style], classifier: Path | None = None, seed: int = 0
) -> tuple[dict[str, Any], dict[str, UInt8[np.ndarray, "K S S"]]]:
    """Measure every method on the held-out pictures of the first look.

    Args:
        classifier: of malignancy, a folder; it must not have seen these pictures.

    Returns:
        the table as plain values; the pictures by each method.

    Raises:
        InputError: the classifier cannot be read.
    """
    rng = np.random.default_rng(seed)
    references = own.train_b[rng.integers(0, len(own.train_b), len(own.held_a))]
    made = {"none": own.held_a}
    made |= {name: np.asarray(style(own.held_a, references)) for name, style in methods.items()}
    table = {name: _measured(own, images) for name, images in made.items()}
    for name, style in methods.items():
        if isinstance(style, Translator) and BACK in style.ways:
            hidden = hidden_information(
                own.held_a / 255, partial(style.way, FORTH), partial(style.way, BACK)
            )
            table[name] |= {"cycle": hidden.plain, "hidden_growth": hidden.growth}
    if classifier is not None:
        _add_malignancy(table, own, made, classifier)
    facts = {"train_a": len(own.train_a), "train_b": len(own.train_b),
             "held_a": len(own.held_a), "held_b": len(own.held_b),
             "malignant": int(own.labels.sum())}  # fmt: skip
    return {"pictures": facts, "methods": table}, made


def _measured(own: Looks, images: UInt8[np.ndarray, "K S S"]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, features in FEATURES.items():
        parts = [features(x) for x in (own.train_a, own.train_b, own.held_a, own.held_b, images)]
        both = np.concatenate(parts[:2])
        train_a, train_b, held_a, held_b, changed = standardized(both, *parts)
        device = device_classifier((train_a, train_b), (held_a, held_b), changed)
        found[name] = {
            "kid": kernel_distance(changed, held_b),
            "device_accuracy": device.accuracy,
            "to_target": device.to_target,
        }
    boxes = [box_in_view(row, images.shape[1]) for row in own.rows]
    found["lesion_overlap"] = float(overlaps(own.held_a, images, boxes).mean())
    return found


def _add_malignancy(
    table: dict[str, Any], own: Looks, made: Mapping[str, np.ndarray], classifier: Path
) -> None:
    folder = load_classifier(classifier)
    judge = Classifier(folder)
    clusters = [str(row.cluster) for row in own.rows]

    def scores(images: np.ndarray) -> np.ndarray:
        return judge.scores(np.stack([square(image, folder.side) for image in images]))

    before = scores(made["none"])
    for name, images in made.items():
        after = scores(images)
        area = estimates(own.labels, after, clusters, {"auroc": auroc})["auroc"]
        table[name]["malignancy"] = [area.value, *area.ci95]
        change = difference(own.labels, after, before, clusters)
        table[name]["malignancy_change"] = [change.value, *change.ci95]


def write_grid(path: Path, own: Looks, made: Mapping[str, UInt8[np.ndarray, "K S S"]]) -> None:
    """A picture: a row for each method, the same lesions below each other; last the target's."""
    rows = [images[:COLUMNS] for images in (*made.values(), own.held_b)]
    side = rows[0].shape[1]
    sheet = np.full((len(rows) * (side + 4), COLUMNS * (side + 4)), 255, np.uint8)
    for r, images in enumerate(rows):
        for c, image in enumerate(images):
            sheet[r * (side + 4) :, c * (side + 4) :][:side, :side] = image
    picture = Image.fromarray(sheet).resize((sheet.shape[1] * 2, sheet.shape[0] * 2))
    with atomic_path(path) as part:
        picture.save(part, format="PNG")


def methods_of(folders: Sequence[Path]) -> dict[str, Style]:
    """Those that need no training, and the trained ones of some folders, by their method's name.

    Raises:
        InputError: a folder cannot be read, or two are of one method.
    """
    found: dict[str, Style] = dict(STYLES)
    for folder in folders:
        read = load_translation(folder)
        name = str(read.facts.get("method"))
        if name in found:
            raise InputError(folder, "method", f"{name} twice", "one of each", "leave one out")
        found[name] = Translator(read.model, read.ways)
    return found


def table_text(values: Mapping[str, Any]) -> str:
    """The table for people."""
    facts = values["pictures"]
    lines = [
        f"trained on {facts['train_a']} and {facts['train_b']} pictures; measured on "
        f"{facts['held_a']} held out ({facts['malignant']} malignant) against {facts['held_b']}",
        f"{'method':<12}{'KID random':>11}{'spectrum':>10}{'to target':>11}{'spectrum':>10}"
        f"{'overlap':>9}{'hidden x':>10}{'cycle':>7}  malignancy",
    ]
    for name, row in values["methods"].items():
        one, two = row["random network"], row["spectrum"]
        hidden, cycle = (f"{row[k]:.2f}" if k in row else "-" for k in ("hidden_growth", "cycle"))
        area = "-"
        if "malignancy" in row:
            (value, *_), (change, low, high) = row["malignancy"], row["malignancy_change"]
            area = f"{value:.3f} (change {change:+.3f}, {low:+.3f} to {high:+.3f})"
        lines.append(
            f"{name:<12}{one['kid']:>11.4f}{two['kid']:>10.4f}{one['to_target']:>11.2f}"
            f"{two['to_target']:>10.2f}{row['lesion_overlap']:>9.3f}{hidden:>10}{cycle:>7}  {area}"
        )
    accuracy = [values["methods"]["none"][name]["device_accuracy"] for name in FEATURES]
    lines.append(
        f"balanced accuracy of the classifiers of devices on what was held out: {accuracy[0]:.2f} "
        f"by the random network, {accuracy[1]:.2f} by the spectrum"
    )
    return "\n".join(lines)
