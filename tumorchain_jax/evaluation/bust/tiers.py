"""Difficulty tiers by consensus of classifiers of different families, all out of fold.

A family is right on a lesion if the majority of its seeds is, at a probability of one half. Easy:
every family is right; hard: none is; discordant: the rest. The models that make the tiers may not
be reported by them: their errors are what defines the tiers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.data.json_lines import LineFields, read_lines
from tumorchain_jax.evaluation.bust.cases import KEY
from tumorchain_jax.ultrasound.lesion import read_manifest

TIERS = ("easy", "discordant", "hard")
LEAST_FAMILIES, LEAST_SEEDS = 2, 3
HINT = "use scores.jsonl of `tumorchain bus crossval --seeds 0 1 2`"


@dataclass(frozen=True)
class Scores:
    """Out-of-fold probabilities of malignancy of one classifier.

    Attributes:
        sha256: of the file.
        by_seed: seed -> picture of the prepared folder -> probability.
    """

    sha256: str
    by_seed: Mapping[int, Mapping[str, float]]

    def mean(self) -> dict[str, float]:
        """Picture -> mean over the seeds that have it."""
        pooled: dict[str, list[float]] = {}
        for scores in self.by_seed.values():
            for name, score in scores.items():
                pooled.setdefault(name, []).append(score)
        return {name: float(np.mean(each)) for name, each in pooled.items()}


def read_scores(path: Path) -> Scores:
    """Read `scores.jsonl` of a cross-validation.

    Raises:
        InputError: it cannot be read, a score is none or not out of fold, a picture is there twice
            for a seed, or seeds have different pictures.
    """
    by_seed: dict[int, dict[str, float]] = {}
    for source, _, values in read_lines(path):
        line = LineFields(source, values, hint=HINT)
        seed, name = line.integer("seed"), line.text("id", filled=True)
        line.integer("fold")  # -1 is a score of a model that saw every fold
        score = values.get("score")
        if type(score) is not float or not 0 <= score <= 1:
            line.refuse("score", "a probability")
        own = by_seed.setdefault(seed, {})
        if name in own:
            line.refuse("id", "each picture once a seed")
        own[name] = score
    if not by_seed:
        raise InputError(path, "lines", "none", "a score on each", HINT)
    # Seeds deal the folds, never the test part: each has the same pictures.
    first, *others = (set(scores) for scores in by_seed.values())
    if any(each != first for each in others):
        raise InputError(path, "id", "other pictures in another seed", "the same in each", HINT)
    return Scores(hashlib.sha256(path.read_bytes()).hexdigest(), by_seed)


def read_key(cases: Path) -> dict[str, str]:
    """Name in the prepared folder -> case."""
    path = cases / KEY
    try:
        lines = path.read_text("utf-8").splitlines()
        return {json.loads(name): case for case, name in (line.split("\t") for line in lines)}
    except (OSError, ValueError) as error:
        hint = "make the cases again with `tumorchain bust cases`"
        raise InputError(path, "key", str(error)[:80], "case and name", hint) from error


def make_tiers(cases: Path, families: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """Sort the lesions into tiers.

    Args:
        families: name and `scores.jsonl` of each.

    Returns:
        `families` with hashes and seeds, `tiers` by case, `counts`, `without` (lesions that a
        family has no out-of-fold score of), and `probabilities` by case and family.

    Raises:
        InputError: there are too few families or seeds, one is there twice, or a file cannot be
            used.
    """
    if len({name for name, _ in families}) < max(LEAST_FAMILIES, len(families)):
        found = " ".join(name for name, _ in families) or "none"
        expected = f"{LEAST_FAMILIES} or more different ones"
        raise InputError("command line", "--family", found, expected, "add NAME=scores.jsonl")
    read = {}
    for name, path in families:
        scores = read_scores(path)
        if len(scores.by_seed) < LEAST_SEEDS:
            found = f"{len(scores.by_seed)} seeds of {name}"
            raise InputError(path, "seed", found, f"{LEAST_SEEDS} or more", HINT)
        read[name] = scores
    if len({each.sha256 for each in read.values()}) < len(read):
        found = "one file for two families"
        raise InputError("command line", "--family", found, "a file for each", "name another")
    key = {case: name for name, case in read_key(cases).items()}
    tiers: dict[str, str] = {}
    without: list[str] = []
    probabilities: dict[str, dict[str, list[float]]] = {}
    for row in read_manifest(cases):
        if row.label == "normal":
            continue
        name = key.get(row.id, "")
        if not all(name in own for each in read.values() for own in each.by_seed.values()):
            without.append(row.id)
            continue
        said = {
            family: [own[name] for _, own in sorted(each.by_seed.items())]
            for family, each in read.items()
        }
        probabilities[row.id] = said
        tiers[row.id] = _tier(said, row.label == "malignant")
    if not tiers:
        raise InputError(cases, "cases", "none with scores", "some", "score the same prepared set")
    return {
        "families": {
            name: {"sha256": each.sha256, "seeds": sorted(each.by_seed)}
            for name, each in read.items()
        },
        "counts": {tier: Counter(tiers.values())[tier] for tier in TIERS},
        "without": without,
        "tiers": tiers,
        "probabilities": probabilities,
    }


def _tier(said: Mapping[str, Sequence[float]], malignant: bool) -> str:
    """The tier of a lesion; a tie of seeds is not right."""
    right = [
        2 * sum((score >= 0.5) == malignant for score in scores) > len(scores)
        for scores in said.values()
    ]
    return "easy" if all(right) else "discordant" if any(right) else "hard"


def write_tiers(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of tiers."""
    write_file(path, (json.dumps(values, indent=1) + "\n").encode())


def read_tiers(path: Path) -> dict[str, Any]:
    """Read a file of tiers.

    Raises:
        InputError: it is none.
    """
    values = read_json(path)
    tiers, families = values.get("tiers"), values.get("families")
    hint = "make it with `tumorchain bust tiers`"
    if not isinstance(tiers, dict) or not isinstance(families, dict):
        raise InputError(path, "tiers", "none", "tiers and families", hint)
    if others := sorted({str(each) for each in tiers.values()} - {*TIERS}):
        raise InputError(path, "tiers", others[0][:40], ", ".join(TIERS), hint)
    return values


def check_not_tiering(tiers: Mapping[str, Any], name: str, sha256: str = "") -> None:
    """Refuse to report a model by the tiers that it made.

    Args:
        sha256: of its scores, where it has a file of them.

    Raises:
        InputError: it made them, by its name or its scores.
    """
    for family, values in tiers["families"].items():
        if name.casefold() == family.casefold() or (sha256 and sha256 == values["sha256"]):
            raise InputError(
                "command line", "--tiers", f"{name}, which made these tiers",
                "a model that had no part in them", "report it without --tiers",
            )  # fmt: skip
