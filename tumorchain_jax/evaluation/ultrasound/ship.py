"""`tumorchain bus crossval --ship`: one classifier of the whole development part, with its guard.

OUTPUT/config.json, model.safetensors, guard.safetensors    what `bus predict` needs
OUTPUT/crossval.json, crossval.txt, guard.json, gallery.html
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Float, Int
from ml_collections import ConfigDict

from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.evaluation.ultrasound.classifier import Classifier
from tumorchain_jax.evaluation.ultrasound.crossval import Run, Scored, of_seed, trained
from tumorchain_jax.evaluation.ultrasound.gallery import Entry, choose, gallery_page
from tumorchain_jax.evaluation.ultrasound.guard import (
    Guard,
    appearances,
    measured_guard,
    other_pictures,
    save_guard,
)
from tumorchain_jax.evaluation.ultrasound.saliency import inside_share, occlusion_map, sanity
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.training.classification.program import init_variables
from tumorchain_jax.training.classification.source import Pictures
from tumorchain_jax.ultrasound.picture import read_picture
from tumorchain_jax.ultrasound.view import VIEWS, render_mask
from tumorchain_jax.weights.classifier_folder import load_classifier

WHOLE = Run("all")
SALIENCY_PICTURES, RANDOM_SEED = 20, 12345


def ship(
    config: ConfigDict,
    workdir: Path,
    output: Path,
    pictures: Pictures,
    found: Sequence[Scored],
    others: Mapping[str, Path],
) -> dict[str, Any]:
    """Train on the development part, measure a guard on the folds, and write the folder.

    Args:
        config: of the cross-validation.
        others: folders of pictures that are no breast ultrasound, by name.

    Returns:
        the guard's scores, as plain values.

    Raises:
        InputError: the output is there, or a folder of others has no picture.
    """
    seed = found[0].seed
    own = of_seed(config, seed)
    strangers = {name: appearances(greys) for name, greys in other_pictures(others).items()}
    guard, values = pictures_guard(Path(config.data.folder), pictures, found[0].folds, strangers)
    whole = trained(own, workdir, seed, WHOLE)
    values["saliency"] = _saliency(own, whole, pictures)
    with atomic_directory(output) as part:
        for path in sorted((workdir / str(seed) / WHOLE.name / "export").iterdir()):
            shutil.copyfile(path, part / path.name)
        save_guard(part, guard)
        for name in ("crossval.json", "crossval.txt"):
            shutil.copyfile(workdir / name, part / name)
        (part / "guard.json").write_text(json.dumps(values, indent=1) + "\n")
        (part / "gallery.html").write_text(_gallery(own, workdir, pictures, found), "utf-8")
    return values


def pictures_guard(
    folder: Path,
    pictures: Pictures,
    folds: Int[np.ndarray, " N"],
    others: Mapping[str, Float[np.ndarray, "M K"]],
) -> tuple[Guard, dict[str, Any]]:
    """Fit and measure a guard on the development part; see `measured_guard`."""
    numbers = np.flatnonzero(~pictures.is_test)
    rows = [pictures.rows[int(number)] for number in numbers]
    own = appearances(read_picture(folder / row.image).grey for row in rows)
    return measured_guard(own, folds[numbers], pictures.sources[numbers], others)


def _saliency(config: ConfigDict, whole: Classifier, pictures: Pictures) -> dict[str, Any]:
    """Do the maps depend on what was learned, and do they lie on the lesion? Of test pictures."""
    some = np.flatnonzero(pictures.is_test)[:SALIENCY_PICTURES].tolist()
    images = np.asarray(pictures.images[some])
    drawn = jax.jit(partial(init_variables, config))(jax.random.key(RANDOM_SEED))
    variables = nn.meta.unbox(drawn)
    arrays = flatten(variables["params"]) | flatten(variables.get(STATISTICS, {}))
    plain = {path: np.asarray(leaf) for path, leaf in arrays.items()}
    random = Classifier(replace(whole.folder, arrays=plain), flips=True)
    found = {"n": len(some), "rank_correlation_with_random_model": float(np.nanmean(
        sanity(whole, random, images)))}  # fmt: skip
    if config.data.view == VIEWS[0]:
        pairs = [
            inside_share(occlusion_map(whole, image), mask)
            for image, mask in zip(images, (_mask(config, pictures, k) for k in some), strict=True)
            if mask is not None
        ]
        shares = np.mean(pairs, axis=0)
        found |= {"change_inside_lesion": float(shares[0]), "lesion_of_picture": float(shares[1])}
    return found


def _mask(config: ConfigDict, pictures: Pictures, number: int) -> np.ndarray | None:
    """The lesion as the view shows it, True inside; None without a mask."""
    row = pictures.rows[number]
    if not row.mask:
        return None
    return render_mask(Path(config.data.folder), row, config.data.view, config.data.side) > 127


def _gallery(config: ConfigDict, workdir: Path, pictures: Pictures, found: Sequence[Scored]) -> str:
    """Pictures out of fold, each with the map of the model that has not seen it."""
    scores = np.mean([scored.scores for scored in found], axis=0)
    where = np.flatnonzero(np.isfinite(scores))
    chosen = choose(scores[where], pictures.labels[where] == 1)
    models = {
        fold: Classifier(
            load_classifier(workdir / str(found[0].seed) / f"fold_{fold}" / "export"), flips=True
        )
        for fold in range(config.data.folds)
    }

    def entry(number: int) -> Entry:
        row, image = pictures.rows[number], np.asarray(pictures.images[number])
        heat = occlusion_map(models[int(found[0].folds[number])], image)
        outline = _mask(config, pictures, number)
        return Entry(row.id, row.label, float(scores[number]), image, outline, heat)

    groups = [(name, [entry(int(where[k])) for k in numbers]) for name, numbers in chosen.items()]
    note = (
        f"View {config.data.view}; scored by models that have not seen the picture, seeds "
        f"{', '.join(str(scored.seed) for scored in found)}. Blue: the lesion's outline, which the "
        "classifier is not given. Orange, on the right: where blurring lowers the score of the "
        f"model of seed {found[0].seed}."
    )
    return gallery_page("Breast ultrasound: right, wrong, uncertain", note, groups)
