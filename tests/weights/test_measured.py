"""The files that travel with a model: scores, calibration, training seeds."""

import json
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.weights.calibration import Bin, Calibration, KindCalibration
from tumorchain_jax.weights.measured import (
    CALIBRATION,
    EVALUATION,
    Measured,
    copy_measured,
    read_measured,
    write_calibration,
    write_evaluation,
    write_training,
)
from tumorchain_jax.weights.scores import DIGITAL, DOMAINS, REAL, DomainScores, Score
from tumorchain_jax.weights.seeds import overlap

SHA = "ab" * 32
SCORES = DomainScores("some", 10, (2_000_000, 10), {"shape": Score(70.0, (60.0, 80.0), 50, 50.0)})
REAL_SCORES = DomainScores("others", 3, None, {"shape": Score(40.0, (30.0, 50.0), 9, 30.0, 41.0)})
CALIBRATED = Calibration(
    seeds=(5_000_000, 20),
    n=100,
    abstained=1,
    threshold=0.5,
    kinds={"shape": KindCalibration(2.0, -0.5, 99)},
    ece_before=(20.0, 18.0, 22.0),
    ece_after=(3.0, 2.0, 4.0),
    accuracy=(70.0, 60.0, 80.0),
    accuracy_at_80=(80.0, 70.0, 90.0),
    coverage=(75.0, 70.0, 80.0),
    accuracy_answered=(82.0, 75.0, 88.0),
    bins=[Bin(0.55, 0.5, 99)],
)


def test_files_come_back_as_they_were_written(tmp_path: Path) -> None:
    assert read_measured(tmp_path, SHA) == Measured()
    write_evaluation(tmp_path, SHA, DIGITAL, SCORES)
    write_evaluation(tmp_path, SHA, REAL, REAL_SCORES)
    write_calibration(tmp_path, SHA, CALIBRATED)
    write_training(tmp_path, SHA, [(1_000_000, 40)])
    expected = Measured({DIGITAL: SCORES, REAL: REAL_SCORES}, CALIBRATED, ((1_000_000, 40),))
    assert read_measured(tmp_path, SHA) == expected
    (tmp_path / "copy").mkdir()
    copy_measured(tmp_path, tmp_path / "copy")
    assert read_measured(tmp_path / "copy", SHA) == expected


def test_files_about_other_weights_are_not_used(tmp_path: Path) -> None:
    write_evaluation(tmp_path, SHA, DIGITAL, SCORES)
    found = read_measured(tmp_path, "cd" * 32)
    assert found == Measured(warnings=(f"{EVALUATION} is about other weights and is not used",))
    write_evaluation(tmp_path, "cd" * 32, REAL, REAL_SCORES)  # replaces them
    assert read_measured(tmp_path, "cd" * 32).domains == {REAL: REAL_SCORES}


def test_baseline_is_the_better_of_the_two() -> None:
    assert SCORES.subtasks["shape"].above_baseline
    of_real = REAL_SCORES.subtasks["shape"]
    assert of_real.baseline == 41
    assert not of_real.above_baseline
    assert not Score(50.0, (40.0, 60.0), 9, 50.0).above_baseline


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ((0, 10), (10, 5), False),
        ((0, 10), (9, 5), True),
        ((9, 5), (0, 10), True),
        ((10, 5), (0, 10), False),
        ((0, 100), (50, 1), True),
        (None, (0, 1), False),
    ],
)
def test_seeds_overlap(a: Any, b: Any, shared: bool) -> None:
    assert overlap(a, b) is shared


def test_seeds_of_another_purpose_are_refused_in_one_line() -> None:
    model = Measured({DIGITAL: SCORES}, CALIBRATED, ((1_000_000, 40), (1_500_000, 1)))
    for seeds, purpose, found in (
        ((1_000_039, 5), "calibration", "training (1000000 to 1000039)"),
        ((1_499_990, 20), "evaluation", "training (1500000 to 1500000)"),
        ((1_999_999, 2), "calibration", "evaluation (2000000 to 2000009)"),
        ((5_000_019, 1), "evaluation", "calibration (5000000 to 5000019)"),
    ):
        with pytest.raises(InputError) as error:
            model.check_seeds(seeds, purpose)
        assert found in str(error.value)
        assert "\n" not in str(error.value)
    model.check_seeds((2_000_000, 10), "evaluation")  # the same measurement again
    model.check_seeds((5_000_000, 20), "calibration")
    model.check_seeds((3_000_000, 100), "calibration")


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        (CALIBRATION, {"threshold": 2}, "threshold"),
        (CALIBRATION, {"seeds": None}, "seeds"),
        (CALIBRATION, {"seeds": [1.5, 2]}, "seeds"),
        (CALIBRATION, {"kinds": {"x": {"temperature": 0, "bias": 0, "n": 1}}}, "temperature"),
        (CALIBRATION, {"bins": [3]}, "bins"),
        (CALIBRATION, {"ece_after": [1, 2]}, "ece_after"),
        (EVALUATION, {"domains": {"the moon": {}}}, "the moon"),
        (EVALUATION, {"domains": {REAL: {}}}, "subtasks"),
        (EVALUATION, {"weights_sha256": 3}, "weights_sha256"),
    ],
)
def test_damaged_files_are_refused_by_field(
    name: str, change: dict[str, Any], field: str, tmp_path: Path
) -> None:
    write_evaluation(tmp_path, SHA, DIGITAL, SCORES)
    write_calibration(tmp_path, SHA, CALIBRATED)
    values = json.loads((tmp_path / name).read_text())
    (tmp_path / name).write_text(json.dumps(values | change))
    with pytest.raises(InputError, match=field):
        read_measured(tmp_path, SHA)


def test_every_kind_of_patients_has_an_entry_of_its_own(tmp_path: Path) -> None:
    for count, domain in enumerate(DOMAINS, 1):
        scores = DomainScores(domain, count, None, SCORES.subtasks)
        write_evaluation(tmp_path, SHA, domain, scores)
    found = read_measured(tmp_path, SHA).domains
    assert {name: found[name].patients for name in DOMAINS} == dict(
        zip(DOMAINS, range(1, len(DOMAINS) + 1), strict=True)
    )
