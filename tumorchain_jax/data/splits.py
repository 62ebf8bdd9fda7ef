"""The split of a data set: which patients train and which test.

    DIR/split.json    {"train": [names], "test": [names]}, as the records name their patients

A patient's side is drawn by a hash of its name alone (paper, section 2.2: 9 to 1), so a patient
that is added later does not move any other.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file

SIDES = ("train", "test")
TEST_ONE_IN = 10
REMAKE = "fix split.json, or make it again with tumorchain_jax.data.splits.write_split"


def split_patients(names: Iterable[str]) -> dict[str, list[str]]:
    """Put every patient on one of the `SIDES`, about one in ten on `test`.

    Returns:
        side -> names, sorted, each once.
    """
    split: dict[str, list[str]] = {side: [] for side in SIDES}
    for name in sorted(set(names)):
        drawn = int.from_bytes(hashlib.sha256(name.encode()).digest())
        split["test" if drawn % TEST_ONE_IN == 0 else "train"].append(name)
    return split


def write_split(folder: Path, split: Mapping[str, Iterable[str]]) -> None:
    """Write `split.json`."""
    lists = {side: list(split[side]) for side in SIDES}
    content = json.dumps(lists, indent=1, ensure_ascii=False) + "\n"
    write_file(folder / "split.json", content.encode())


def read_split(folder: Path) -> Mapping[str, frozenset[str]]:
    """Read the patients of each of the `SIDES`.

    Raises:
        InputError: there is no `split.json`, it is malformed, or a patient is on both sides.
    """
    path = folder / "split.json"
    if not path.is_file():
        raise InputError(folder, "split.json", "none", "a data set's split", "make or complete it")
    try:
        lists = json.loads(path.read_bytes())
        if sorted(lists) != sorted(SIDES):
            raise ValueError(f"names {sorted(lists)}")
        for side in SIDES:
            _check_list(side, lists[side])
    except (ValueError, TypeError, RecursionError) as error:
        expected = f"two lists of names, {' and '.join(SIDES)}, each name once"
        raise InputError(path, "split", repr(str(error)), expected, REMAKE) from error
    split = {side: frozenset(lists[side]) for side in SIDES}
    for name in sorted(split["train"] & split["test"]):
        raise InputError(path, "split", f"{name} in both lists", "each patient in one", REMAKE)
    return split


def _check_list(side: str, names: object) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{side} is no list of names")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} twice in {side}")
