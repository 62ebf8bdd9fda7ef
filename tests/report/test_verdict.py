"""What a report says of an answer that may not be one."""

from collections.abc import Callable
from pathlib import Path

from tumorchain_jax.report.page import render
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.verdict import Confidence, Verdict
from tumorchain_jax.weights.scores import REAL, Score

SCORE = Score(40.0, (30.0, 50.0), 60, 36.7)
GIVEN = Verdict("yes/no", "", Confidence(0.8, 0.5, -0.1, "confidence 80 %"), REAL, SCORE, "n 60")
LOW = Confidence(0.3, 0.5, -2.0, "confidence 30 %, below the threshold of 50 %")
WITHHELD = Verdict("yes/no", f"cannot tell: {LOW.text}", LOW, REAL, None, "<never> evaluated")
ADDED = ["headline", "answer_kind", "answered", "reason", "confidence", "evaluation"]


def test_headline_is_the_conclusion_or_why_there_is_none(
    make_report: Callable[..., Report], tmp_path: Path
) -> None:
    plain, given, withheld = (make_report(verdict=v) for v in (None, GIVEN, WITHHELD))
    assert plain.headline == given.headline == "no lesion"
    assert withheld.headline == WITHHELD.reason
    assert WITHHELD.reason in repr(withheld)
    assert make_report(conclusion="").headline == "No answer was given."
    assert list(given.to_dict())[-len(ADDED) :] == ADDED
    # The model's own text is in the record whatever became of it.
    record = withheld.to_dict()
    assert (record["answered"], record["conclusion"]) == (False, "no lesion")
    assert record["answer"] == plain.to_dict()["answer"]
    assert given.to_dict()["evaluation"]["score"]["n"] == 60
    assert given.to_dict()["confidence"]["value"] == 0.8


def test_page_shows_why_an_answer_is_withheld(make_report: Callable[..., Report]) -> None:
    page = render(make_report(verdict=WITHHELD))
    assert '<section class="statement withheld"><h2>No answer</h2>' in page
    assert f'<p class="free-text">{WITHHELD.reason}</p>' in page
    assert "The model&#x27;s text, not to be relied on: no lesion" in page
    assert "&lt;never&gt; evaluated" in page


def test_page_shows_score_and_confidence_beside_the_answer(
    make_report: Callable[..., Report],
) -> None:
    page = render(make_report(verdict=GIVEN))
    assert '<section class="statement withheld">' not in page
    assert '<p class="behind free-text">confidence 80 %; n 60.</p>' in page
