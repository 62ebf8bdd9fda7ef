"""A page of replies with the pictures that they are about: right and wrong, the reader's beside."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.arms import Replies, finished, folds_of
from tumorchain_jax.evaluation.ultrasound.chain_scores import Lesions, read_lesions
from tumorchain_jax.evaluation.ultrasound.concepts import is_described
from tumorchain_jax.evaluation.ultrasound.gallery import Entry, gallery_page
from tumorchain_jax.ultrasound.chains.messages import FOLDERS, Arm
from tumorchain_jax.ultrasound.chains.text import chain
from tumorchain_jax.ultrasound.picture import read_picture
from tumorchain_jax.ultrasound.view import square

SHOWN, SIDE = 5, 112
"""Replies of a group; pixels of a picture's side, as `gallery.py` enlarges them."""
ARMS: tuple[Arm, ...] = ("chain", "look")


def chain_page(data: Path, workdir: Path) -> str:
    """Write the page: of the arms that reason, five right and five wrong replies each.

    Drawn at random from a fixed seed, not chosen; lesions with a reader's descriptors come first.

    Args:
        data: folder that `bus chains` wrote.
        workdir: of `bus arms`; its first seed is shown.

    Raises:
        InputError: no arm that reasons has finished a fold, or a picture cannot be read.
    """
    found, lesions = finished(workdir, folds_of(data)), read_lesions(data, "folds")
    groups = []
    for arm in ARMS:
        of_folds = found.get((arm, "none"), {}).values()
        replies = {name: each for seeds in of_folds for name, each in seeds[0].items()}
        for name, numbers in _drawn(lesions, replies).items():
            entries = [_entry(data, arm, lesions, number, replies) for number in numbers]
            groups.append((f"{arm}: {name}", entries))
    if not any(entries for _, entries in groups):
        expected = "a fold of chain or look"
        raise InputError(workdir, "folds", "none", expected, "run `tumorchain bus arms` on")
    note = (
        "Replies of small models to lesions of a fold that they have not seen, drawn at random "
        "among the right and the wrong ones, those that a reader described first. On the right of "
        "a picture: the region that the second look is shown; the lesion's box is given, not "
        "found. The reader's own levels are beneath."
    )
    return gallery_page("Breast ultrasound: chains, right and wrong", note, groups)


def _drawn(lesions: Lesions, replies: Replies) -> dict[str, list[int]]:
    drawn = np.random.default_rng(0).permutation(len(lesions.names)).tolist()
    order = sorted(drawn, key=lambda number: not is_described(lesions.truth[number]))
    groups: dict[str, list[int]] = {"right": [], "wrong": []}
    for number in order:
        reply = replies.get(lesions.names[number])
        if reply is not None:
            is_right = reply.verdict == bool(lesions.malignant[number])
            groups["right" if is_right else "wrong"].append(number)
    return {name: numbers[:SHOWN] for name, numbers in groups.items()}


def _entry(data: Path, arm: Arm, lesions: Lesions, number: int, replies: Replies) -> Entry:
    name, truth = lesions.names[number], lesions.truth[number]
    folders: Sequence[str] = FOLDERS if arm == "look" else FOLDERS[:1]
    shown = [square(read_picture(data / each / f"{name}.png").grey, SIDE) for each in folders]
    reply = replies[name]
    return Entry(
        f"{lesions.sources[number]} {name[:8]}",
        truth.one("label"),
        reply.malignant,
        shown[0],
        beside=shown[1:],
        words=(("Model", reply.text), ("Reader", chain(truth))),
    )
