"""What was measured of a model, in two files beside its weights: its scores, and its calibration.

evaluation.json    by domain: accuracy of each subtask with interval, n and majority baseline
calibration.json   by kind of question: from the probability of an answer to that of its being right

Both name the weights they were measured of; a file of other weights is not used.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.json_fields import Fields, read_json

EVALUATION, CALIBRATION = "evaluation.json", "calibration.json"
DIGITAL, REAL = "digital patients", "real CT"
DOMAINS = (DIGITAL, REAL)
OTHER_WEIGHTS = "{} was measured of other weights and is not used"
LARGEST_LOG_ODDS = 15.0
"""In float32 a probability near 1 is 1: log-odds are cut off here."""


@dataclass(frozen=True)
class Score:
    """How well a model answered the questions of a subtask, in percent.

    Attributes:
        ci95: 95 % interval of the accuracy.
        majority: accuracy of always giving the most frequent answer.
        of: the subtasks that it is the average of; empty for a single one.
    """

    accuracy: float
    ci95: tuple[float, float]
    n: int
    majority: float
    of: tuple[str, ...] = ()

    @property
    def above_chance(self) -> bool:
        """Whether the whole interval lies above the majority baseline."""
        return self.ci95[0] > self.majority


@dataclass(frozen=True)
class DomainScores:
    """Scores on scans of one kind.

    Attributes:
        source: the patients, for people.
        seeds: first seed and number of the patients, where they are digital ones.
        subtasks: Table 1's name -> score.
        average: of several subtasks, for those without a score of their own.
    """

    source: str
    seeds: tuple[int, int] | None
    subtasks: Mapping[str, Score]
    average: Score | None = None

    def score(self, subtask: str) -> Score | None:
        """Return a subtask's score, or else an average that includes it."""
        if subtask in self.subtasks:
            return self.subtasks[subtask]
        return self.average if self.average and subtask in self.average.of else None


@dataclass(frozen=True)
class KindCalibration:
    """Map of an answer's probability to that of its being right, for one kind of question.

    `sigmoid(log_odds / temperature + bias)`: temperature scaling with a bias (Platt scaling).

    Attributes:
        threshold: below it, the report says "cannot tell".
        n: answers it was fitted on.
    """

    temperature: float
    bias: float
    threshold: float
    n: int

    def confidence(self, log_probability: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return the probability that answers of these log-probabilities are right."""
        return 1 / (1 + np.exp(-log_odds(log_probability) / self.temperature - self.bias))


def log_odds(log_probability: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Turn log-probabilities into log-odds within +-`LARGEST_LOG_ODDS`."""
    bounded = np.clip(np.asarray(log_probability, float), -LARGEST_LOG_ODDS, -1e-12)
    return np.clip(bounded - np.log(-np.expm1(bounded)), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)


@dataclass(frozen=True)
class Calibration:
    """Calibration of a model's answers to digital patients.

    Attributes:
        seeds: first seed and number of the patients it was fitted on.
        kinds: of question.
        ece_before, ece_after: expected calibration error in percent, of the plain probabilities
            and (each patient by a fit to other patients) of the calibrated ones: value, and 95 %
            interval.
    """

    seeds: tuple[int, int]
    kinds: Mapping[str, KindCalibration]
    ece_before: tuple[float, float, float]
    ece_after: tuple[float, float, float]


@dataclass(frozen=True)
class Measured:
    """What is known of a model's answers.

    Attributes:
        domains: scores by domain, none if it was never evaluated.
        calibration: None if its confidence is not calibrated.
        warnings: files that are there but of other weights, one line each.
    """

    domains: Mapping[str, DomainScores] = field(default_factory=dict)
    calibration: Calibration | None = None
    warnings: tuple[str, ...] = ()


def overlap(a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool:
    """Whether two ranges of seeds, each its first and its length, share one."""
    return bool(a and b) and a[0] < b[0] + b[1] and b[0] < a[0] + a[1]  # type: ignore[index]


def read_measured(folder: Path, sha256: str) -> Measured:
    """Read the two files of a model folder, where it has them.

    Args:
        sha256: of the folder's weights.

    Raises:
        InputError: a file is damaged.
    """
    domains: dict[str, DomainScores] = {}
    calibration = None
    warnings: tuple[str, ...] = ()
    for name in (EVALUATION, CALIBRATION):
        path = folder / name
        if not path.is_file():
            continue
        fields = Fields(path, "", read_json(path))
        if fields.text("weights_sha256") != sha256:
            warnings += (OTHER_WEIGHTS.format(name),)
        elif name == EVALUATION:
            found = fields.mapping("domains")
            domains = {domain: _domain(found.mapping(domain)) for domain in found.values}
            if unknown := domains.keys() - set(DOMAINS):
                found.refuse(min(unknown), f"one of {', '.join(DOMAINS)}", "evaluate again")
        else:
            calibration = _calibration(fields)
    return Measured(domains, calibration, warnings)


def _domain(fields: Fields) -> DomainScores:
    subtasks = fields.mapping("subtasks")
    rows = {name: _score(subtasks.mapping(name)) for name in subtasks.values}
    average = _score(fields.mapping("average")) if fields.values.get("average") else None
    return DomainScores(fields.text("source"), _seeds(fields), rows, average)


def _score(fields: Fields) -> Score:
    low, high = fields.numbers("ci95", 2)
    of = tuple(fields.sequence("of")) if "of" in fields.values else ()
    if not all(isinstance(name, str) for name in of):
        fields.refuse("of", "names of subtasks")
    accuracy, majority = fields.number("accuracy"), fields.number("majority")
    return Score(accuracy, (low, high), fields.integer("n", least=1), majority, of)


def _seeds(fields: Fields) -> tuple[int, int] | None:
    seeds = fields.values.get("seeds")
    if seeds is None:
        return None
    if not (isinstance(seeds, list) and len(seeds) == 2 and all(type(n) is int for n in seeds)):
        fields.refuse("seeds", "the first seed and their number")
    return seeds[0], seeds[1]


def _calibration(fields: Fields) -> Calibration:
    found, kinds = fields.mapping("kinds"), {}
    for name in found.values:
        kind = found.mapping(name)
        temperature, threshold = kind.number("temperature"), kind.number("threshold")
        if temperature <= 0:
            kind.refuse("temperature", "more than 0", "calibrate again")
        if not 0 <= threshold <= 1:
            kind.refuse("threshold", "0 to 1", "calibrate again")
        n = kind.integer("n", least=1)
        kinds[name] = KindCalibration(temperature, kind.number("bias"), threshold, n)
    before, *low_high = fields.numbers("ece_before", 3)
    after, *bounds = fields.numbers("ece_after", 3)
    seeds = _seeds(fields)
    if seeds is None:
        fields.refuse("seeds", "the first seed and their number", "calibrate again")
    return Calibration(
        seeds, kinds, (before, low_high[0], low_high[1]), (after, bounds[0], bounds[1])
    )


def write_evaluation(folder: Path, sha256: str, domain: str, scores: DomainScores) -> None:
    """Write the scores of a domain into a model folder, beside those of other domains.

    Raises:
        InputError: it cannot be written, or the file that is there is damaged.
    """
    domains = {**read_measured(folder, sha256).domains, domain: scores}
    plain = {name: asdict(each) for name, each in domains.items()}
    _write(folder / EVALUATION, {"weights_sha256": sha256, "domains": plain})


def write_calibration(folder: Path, sha256: str, calibration: Calibration) -> None:
    """Write a calibration into a model folder.

    Raises:
        InputError: it cannot be written.
    """
    _write(folder / CALIBRATION, {"weights_sha256": sha256, **asdict(calibration)})


def _write(path: Path, values: Mapping[str, Any]) -> None:
    try:
        write_file(path, (json.dumps(values, indent=1) + "\n").encode())
    except OSError as error:
        found, hint = error.strerror or "an error", "copy the model folder to a place of your own"
        raise InputError(path, "output", found, "a model folder to write to", hint) from error
