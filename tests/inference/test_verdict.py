"""Whether an answer may stand as the headline, from stub probabilities and made-up scores."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.case import PreparedCase
from tumorchain_jax.inference.runner import Answer
from tumorchain_jax.inference.verdict import (
    BELOW_BASELINE,
    OTHER_ORGANS,
    OTHER_WAY_ROUND,
    check_scope,
    conclusion_log_probability,
    not_segmented,
    scan_domain,
    verdict,
)
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.organ_cells import organ_cells
from tumorchain_jax.reasoning.trace import Round, Trace
from tumorchain_jax.scan.preprocess import GridTransform, PreparedScan
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.factory import NO_SEGMENTER
from tumorchain_jax.segmentation.masks import OrganMasks, given_masks, lazy_masks
from tumorchain_jax.weights.calibration import Calibration, KindCalibration
from tumorchain_jax.weights.measured import Measured
from tumorchain_jax.weights.scores import DIGITAL, REAL, DomainScores, Score

GRID = (4, 8, 8)
KIDNEY = TOTALSEGMENTATOR.index("kidney_left")
WHERE = "Where is the tumour in this CT?"
TEXT = ("<think>", "The liver", " looks odd.", "</think>", " Conclusion: ", "liv", "er", ".")
ORGAN = KindCalibration(2.0, -1.0, 100)
NOTHING = (0.0, 0.0, 0.0)
CALIBRATION = Calibration((5_000_000, 20), 100, 0, 0.5, {"organ": ORGAN}, *[NOTHING] * 6, bins=())


def answer(
    *pieces: str,
    question: str = WHERE,
    source: str = "digital patient 3",
    log_probability: float = -0.1,
) -> Answer:
    """An answer whose every token has the same log-probability."""
    scan = PreparedScan(np.zeros(GRID, np.float32), GridTransform(GRID, np.eye(4)), (), {})
    cells = organ_cells(np.zeros(GRID, np.uint8), RoiSpec((2, 2, 2), 1, 8, 1))
    trace = Trace((Round("".join(pieces), (), 1, 1, True, 0.0),), "no_new_organ")
    tokens = tuple((piece.encode(), log_probability) for piece in pieces)
    return Answer(PreparedCase(source, scan, cells, (), {}), question, trace, 0, {}, tokens)


def scores(accuracy: float, majority: float, text_only: float | None = None) -> DomainScores:
    row = Score(accuracy, (accuracy - 5, accuracy + 5), 40, majority, text_only)
    return DomainScores("some", 20, None, {"tumor_position": row})


def masks(*labels: int) -> OrganMasks:
    """Masks with a voxel of each label, or the empty masks of a scan without any."""
    voxels = np.zeros(GRID, np.uint8)
    voxels.flat[: len(labels)] = labels
    ct, transform = Volume(np.zeros(GRID, np.float32), np.eye(4)), GridTransform(GRID, np.eye(4))
    if not labels:
        return lazy_masks(ct, transform, NO_SEGMENTER)
    return given_masks(ct, Volume(voxels, np.eye(4), "labels.nii.gz"), transform)


def test_log_probability_of_a_conclusion_is_the_sum_over_its_tokens() -> None:
    given = answer(*TEXT)
    logs = [-9.0, -8.0, -7.0, -6.0, -5.0, -0.25, -0.5, -4.0]
    tokens = tuple((piece, log) for (piece, _), log in zip(given.tokens, logs, strict=True))
    # "liv" and "er"; not the full stop, nor the chain that names the liver too.
    assert conclusion_log_probability(replace(given, tokens=tokens)) == -0.75
    assert conclusion_log_probability(answer("")) is None
    assert conclusion_log_probability(replace(given, tokens=())) is None


def test_log_probability_of_a_conclusion_in_parts_of_letters() -> None:
    whole = "Conclusion: no lésion".encode()
    tokens = tuple((whole[i : i + 1], -1.0) for i in range(len(whole)))
    given = replace(answer("Conclusion: no lésion"), tokens=tokens)
    assert conclusion_log_probability(given) == -len("no lésion".encode())


def test_confidence_without_a_calibration_is_null() -> None:
    found = verdict(answer(*TEXT), Measured())
    assert (found.answered, found.reason) == (True, "")
    assert (found.confidence.value, found.confidence.threshold) == (None, None)
    assert found.confidence.log_probability == pytest.approx(-0.2)
    assert (found.confidence.text, found.measured) == (
        "confidence not calibrated",
        "never evaluated",
    )


def test_confidence_is_the_calibrated_probability() -> None:
    found = verdict(answer(*TEXT, log_probability=-0.01), Measured(calibration=CALIBRATION))
    p = math.exp(-0.02)
    expected = 1 / (1 + math.exp(-math.log(p / (1 - p)) / 2 + 1))
    assert found.confidence.value == pytest.approx(expected)
    assert found.answered
    assert found.confidence.text == f"confidence {100 * expected:.0f} %"


def test_confidence_below_the_threshold_is_cannot_tell() -> None:
    found = verdict(answer(*TEXT, log_probability=-1.0), Measured(calibration=CALIBRATION))
    assert found.confidence.low
    assert not found.answered
    assert found.reason.startswith("cannot tell: confidence ")
    assert found.reason.endswith("below the threshold of 50 %")
    record = found.to_dict()
    assert (record["answered"], record["confidence"]["threshold"]) == (False, 0.5)
    assert json.loads(json.dumps(record)) == record


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": "scan.nii.gz"}, "confidence not calibrated on real CT"),
        ({"question": "What stage is the cancer?"}, "confidence not calibrated for such questions"),
    ],
)
def test_confidence_of_what_was_not_calibrated_is_null(change: dict[str, str], text: str) -> None:
    found = verdict(answer(*TEXT, **change), Measured(calibration=CALIBRATION))
    assert (found.confidence.value, found.confidence.text) == (None, text)


def test_answer_of_another_kind_is_no_answer() -> None:
    found = verdict(answer("Conclusion: T3a"), Measured())
    assert found.answer_kind == "organ"
    asked = "no answer: the question asks for an organ, the model gave a stage (T3a)"
    assert found.reason == asked


def test_question_out_of_scope_is_refused_and_said_where_forced() -> None:
    question = "What is the capital of France?"
    with pytest.raises(InputError, match="question: scope: found nothing that names an organ"):
        check_scope(question)
    check_scope(WHERE)
    found = verdict(answer("Conclusion: round", question=question), Measured())
    assert found.reason.startswith("out of scope: ")


def test_organ_that_is_not_segmented_cannot_be_told() -> None:
    question = "Is the left adrenal gland normal?"
    with_liver = masks(5)
    assert not_segmented(question, with_liver) == ["left adrenal gland"]
    given = answer("Conclusion: yes", question=question)
    found = verdict(replace(given, case=replace(given.case, masks=with_liver)), Measured())
    assert found.reason == "cannot tell: the left adrenal gland is not segmented"
    assert not_segmented("Is the liver normal?", with_liver) == []
    assert not_segmented("Are the kidneys normal?", masks(KIDNEY)) == []  # one of the two is enough
    assert not_segmented(WHERE, with_liver) == []
    assert not_segmented(question, masks()) == not_segmented(question, None) == []


@pytest.mark.parametrize(
    ("accuracy", "majority", "text_only", "answered"),
    [(60.0, 50.0, None, True), (50.0, 50.0, None, False), (60.0, 50.0, 61.0, False)],
)
def test_answer_not_above_its_baseline_is_not_the_headline(
    accuracy: float, majority: float, text_only: float | None, answered: bool
) -> None:
    measured = Measured({REAL: scores(accuracy, majority, text_only)})
    found = verdict(answer(*TEXT), measured, REAL)
    assert found.reason == ("" if answered else BELOW_BASELINE)
    assert f"on real CT, {accuracy:g} % of such answers were right" in found.measured
    assert "n 40" in found.measured
    other = verdict(answer(*TEXT), measured, DIGITAL)
    assert other.answered
    assert other.measured == "such questions were never evaluated on digital patients"


def test_first_reason_counts() -> None:
    measured = Measured({DIGITAL: scores(10.0, 50.0)}, CALIBRATION)
    low = answer("Conclusion: T3", log_probability=-3.0)
    assert verdict(low, measured).reason.startswith("no answer: ")
    low = answer(*TEXT, log_probability=-3.0)
    assert verdict(low, measured).reason == BELOW_BASELINE


def test_domain_of_a_scan(tmp_path: Path) -> None:
    assert scan_domain("digital patient 3") == DIGITAL
    assert scan_domain("ct.nii.gz") == REAL
    truth = tmp_path / "truth.json"
    for values, domain in (
        ({"synthetic": True, "body": {"sex": "f"}}, DIGITAL),
        ({"synthetic": True, "body": None}, REAL),  # a painted CT
        ([], REAL),
    ):
        truth.write_text(json.dumps(values))
        assert scan_domain(str(tmp_path / "ct.nii.gz")) == domain
    assert scan_domain(str(tmp_path / "other.nii.gz")) == REAL


@pytest.mark.parametrize(
    "question",
    [
        "Is the liver normal?",
        "Is the liver free of tumour?",
        "Is there no tumour in the liver?",
        "Is the liver without a lesion?",
        "Is the liver unremarkable?",
    ],
)
def test_yes_to_a_question_asked_the_other_way_round_is_no_answer(question: str) -> None:
    """A model that knows yes as a finding says yes to "free of tumour?" where it saw one."""
    for said in ("yes", "no"):
        given = answer("The liver shows one lesion. Thus, the answer is ", said, question=question)
        assert verdict(given, Measured()).reason == OTHER_WAY_ROUND


@pytest.mark.parametrize(
    "question",
    ["Is there a tumour in the liver?", "Is the liver abnormal?", "Is there a mass or not?"],
)
def test_yes_that_is_a_finding_stands(question: str) -> None:
    given = answer("The liver shows one lesion. Thus, the answer is ", "yes", question=question)
    assert verdict(given, Measured()).reason == ""


def test_chain_about_another_organ_than_the_question_is_no_answer() -> None:
    question = "Is there a tumour in the spleen?"
    given = answer("The oesophagus looks normal. Thus, the answer is ", "no", question=question)
    assert verdict(given, Measured()).reason == OTHER_ORGANS
    given = answer("The spleen looks normal. Thus, the answer is ", "no", question=question)
    assert verdict(given, Measured()).reason == ""
