"""What is known of a model beside its weights, in three optional files of its folder.

evaluation.json    its scores by domain and subtask, with intervals, n and baselines
calibration.json   by kind of question: from the probability of an answer to that of its being right
training.json      the seeds of the digital patients it was trained on

Each names the weights that it is about; a file about other weights is not used.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.json_fields import Fields, read_json
from tumorchain_jax.weights.calibration import Calibration, read_calibration
from tumorchain_jax.weights.scores import DOMAINS, DomainScores, read_domain
from tumorchain_jax.weights.seeds import Seeds, overlap, read_seeds, shown

EVALUATION, CALIBRATION, TRAINING = "evaluation.json", "calibration.json", "training.json"
MEASURED_FILES = (EVALUATION, CALIBRATION, TRAINING)
OTHER_WEIGHTS = "{} is about other weights and is not used"


@dataclass(frozen=True)
class Measured:
    """What is known of a model.

    Attributes:
        domains: scores by domain, none if it was never evaluated.
        calibration: None if its confidence is not calibrated.
        training: the seeds it was trained on, none if they are not known.
        warnings: files that are there but about other weights, one line each.
    """

    domains: Mapping[str, DomainScores] = field(default_factory=dict)
    calibration: Calibration | None = None
    training: Sequence[Seeds] = ()
    warnings: tuple[str, ...] = ()

    def check_seeds(self, seeds: Seeds, purpose: str) -> None:
        """Refuse digital patients that have served another purpose.

        Args:
            seeds: first seed and number of the patients.
            purpose: `evaluation` or `calibration`; patients of the same purpose may be shared.

        Raises:
            InputError: one of them was trained on, calibrated on or evaluated on.
        """
        used = [(each, "training") for each in self.training]
        used += [(each.seeds, "evaluation") for each in self.domains.values() if each.seeds]
        used += [(self.calibration.seeds, "calibration")] if self.calibration else []
        for each, earlier in used:
            if earlier != purpose and overlap(each, seeds):
                found = f"{shown(seeds)}, which share patients with {earlier} ({shown(each)})"
                expected, hint = "patients of their own", f"choose --seed {sum(each)} or more"
                raise InputError(purpose, "seeds", found, expected, hint)


def read_measured(folder: Path, sha256: str) -> Measured:
    """Read the files of a model folder, where it has them.

    Args:
        sha256: of the folder's weights.

    Raises:
        InputError: a file is damaged.
    """
    values: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    for name, read in _READERS.items():
        if not (folder / name).is_file():
            continue
        fields = Fields(folder / name, "", read_json(folder / name))
        if fields.text("weights_sha256") == sha256:
            values |= read(fields)
        else:
            warnings += (OTHER_WEIGHTS.format(name),)
    return Measured(**values, warnings=warnings)


def _evaluation(fields: Fields) -> dict[str, Any]:
    found = fields.mapping("domains")
    for domain in found.values:
        if domain not in DOMAINS:
            found.refuse(domain, f"one of {', '.join(DOMAINS)}", "evaluate again")
    return {"domains": {name: read_domain(found.mapping(name)) for name in found.values}}


def _training(fields: Fields) -> dict[str, Any]:
    ranges = [
        read_seeds(Fields(fields.path, f"seeds[{number}].", {"range": values}), "range")
        for number, values in enumerate(fields.sequence("seeds"))
    ]
    return {"training": tuple(each for each in ranges if each)}


_READERS = {
    EVALUATION: _evaluation,
    CALIBRATION: lambda fields: {"calibration": read_calibration(fields)},
    TRAINING: _training,
}


def write_evaluation(folder: Path, sha256: str, domain: str, scores: DomainScores) -> None:
    """Write the scores of a domain into a model folder, beside those of other domains.

    Raises:
        InputError: it cannot be written, or the file that is there is damaged.
    """
    domains = {**read_measured(folder, sha256).domains, domain: scores}
    _write(folder / EVALUATION, sha256, {"domains": {k: asdict(v) for k, v in domains.items()}})


def write_calibration(folder: Path, sha256: str, calibration: Calibration) -> None:
    """Write a calibration into a model folder.

    Raises:
        InputError: it cannot be written.
    """
    _write(folder / CALIBRATION, sha256, asdict(calibration))


def write_training(folder: Path, sha256: str, seeds: Sequence[Seeds]) -> None:
    """Write the seeds of a model's training patients into its folder.

    Raises:
        InputError: it cannot be written.
    """
    _write(folder / TRAINING, sha256, {"seeds": seeds})


def copy_measured(source: Path, output: Path) -> None:
    """Copy the files of one model folder into another, where the first has them."""
    for name in MEASURED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, output / name)


def _write(path: Path, sha256: str, values: Mapping[str, Any]) -> None:
    try:
        text = json.dumps({"weights_sha256": sha256, **values}, indent=1)
        write_file(path, f"{text}\n".encode())
    except OSError as error:
        found, hint = error.strerror or "an error", "copy the model folder to a place of your own"
        raise InputError(path, "output", found, "a model folder to write to", hint) from error
