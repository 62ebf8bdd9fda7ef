import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa import answerers
from tumorchain_jax.evaluation.deeptumorvqa.answerers import (
    Answerer,
    ModelAnswers,
    RuleAnswers,
    make_answerer,
)
from tumorchain_jax.evaluation.deeptumorvqa.document import score_files
from tumorchain_jax.evaluation.deeptumorvqa.predict import Predicted, predict
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question, QuestionFile, read_questions
from tumorchain_jax.evaluation.deeptumorvqa.ruler.search import find_lesions
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.deeptumorvqa.synthetic.benchmark import write_benchmark
from tumorchain_jax.scan.volume import Volume


class Scripted(Answerer):
    """Says B, and stops at a CT."""

    model, shown = "scripted", "nothing"

    def __init__(self, stop_at: str = ""):
        self.stop_at = stop_at
        self.asked: list[str] = []

    def answer(self, image_id: str, questions: Sequence[Question]) -> list[str]:
        if image_id == self.stop_at:
            raise KeyboardInterrupt
        self.asked += [question.qid for question in questions]
        return ["B"] * len(questions)


@pytest.fixture
def asked(rows: list[dict[str, Any]], write: Callable) -> QuestionFile:
    return read_questions(write("q.json", rows))


def test_stopped_run_asks_nothing_twice(asked: QuestionFile, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with pytest.raises(KeyboardInterrupt):
        predict(asked, Scripted(stop_at="ct2"), "mc", path)
    path.write_bytes(path.read_bytes() + b'{"qid": "q3", "raw_out')  # cut in the middle of a line
    again = Scripted()
    assert predict(asked, again, "mc", path) == Predicted(2, 0)
    assert again.asked == ["q3"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["qid"] for row in rows] == ["q1", "q2", "q3"]
    assert rows[0]["questions"] == asked.sha256
    assert predict(asked, Scripted(), "mc", path).done == 3


def test_files_of_others_are_refused(
    asked: QuestionFile, rows: list[dict[str, Any]], write: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    predict(asked, Scripted(), "mc", path)
    other = Scripted()
    other.model = "other"
    for arguments, match in (
        ((asked, other, "mc"), "model"),
        ((asked, Scripted(), "freeform"), "format"),
        ((read_questions(write("r.json", rows[:2])), Scripted(), "mc"), "q3|questions"),
    ):
        with pytest.raises(InputError, match=match):
            predict(*arguments, path)
    with pytest.raises(InputError, match="jsonl"):
        predict(asked, Scripted(), "mc", tmp_path / "p.txt")


def test_answers_without_a_scan(asked: QuestionFile) -> None:
    questions = asked.questions
    majority = make_answerer("majority", asked, "mc").answer("", questions)
    assert majority == ["D", "B", "B"]
    free = make_answerer("majority", asked, "freeform").answer("", questions)
    assert free == ["Mild", "Yes", "200"]
    chance = make_answerer("chance", asked, "mc")
    assert chance.answer("", questions) == make_answerer("chance", asked, "mc").answer(
        "", questions
    )


def test_scans_are_found_and_named(asked: QuestionFile, tmp_path: Path) -> None:
    for scans, match in ((None, "--scans"), (tmp_path / "none", "no folder"), (tmp_path, "ct1")):
        with pytest.raises(InputError, match=match):
            make_answerer("rules", asked, "mc", scans=scans)
    (tmp_path / "ct1.nii.gz").touch()
    folder = Scans(tmp_path)
    assert folder.ct("ct1") == tmp_path / "ct1.nii.gz"
    assert folder.find("../ct1") is None
    with pytest.raises(InputError, match="--masks segment"):
        folder.mask("ct1", "labels")


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    write_benchmark(folder, 7_600_000, 2)
    return folder


@pytest.mark.parametrize("form", ["mc", "freeform"])
def test_oracle_masks_answer_everything(benchmark: Path, form: Any, tmp_path: Path) -> None:
    questions = benchmark / "test_qa.json"
    asked = read_questions(questions)
    answerer = make_answerer("rules", asked, form, scans=benchmark)
    predict(asked, answerer, form, tmp_path / "p.jsonl")
    document = score_files(questions, tmp_path / "p.jsonl", form, ("fixed",))
    fixed = document["scores"]["fixed"]
    # Truths have one digit: 0.05 of a small number is some percent.
    wrong = {name: row for name, row in fixed["by_subtype"].items() if row["of_asked"] < 97}
    assert not wrong
    assert fixed["n_answered"] == len(asked.questions) > 60


class NearlyTrue:
    """A segmenter that gives the true organs."""

    name = "a stand-in"

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, ct: Volume) -> Volume:
        name = Path(ct.source).parent.name
        return answerers.read_labels(self.folder / name / "labels.nii.gz", ct)


def test_rules_on_segmented_masks_find_lesions_by_hu(benchmark: Path, tmp_path: Path) -> None:
    questions = benchmark / "test_qa.json"
    asked = read_questions(questions)
    answerer = RuleAnswers(Scans(benchmark), "mc", "true")
    answerer.masks = "segment"
    answerer.__dict__["segmenter"] = NearlyTrue(benchmark)
    predict(asked, answerer, "mc", tmp_path / "p.jsonl")
    fixed = score_files(questions, tmp_path / "p.jsonl", "mc", ("fixed",))["scores"]["fixed"]
    # Organs are exact; lesions are searched, so not everything is.
    assert fixed["by_subtype"]["organ volume measurement"]["of_asked"] == 100
    assert 40 < fixed["micro"]["of_asked"] < 100
    assert find_lesions is answerers.find_lesions


class ModelStub(answerers.Analyzer):
    """Stands for an analyzer: it answers with the name of the scan that it was shown."""

    checkpoint: Any = SimpleNamespace(name="stub", sha256="ab" * 32)

    def __init__(self) -> None:
        pass

    def prepare(self, scan: Any, mask: Any = None, force: bool = False) -> Any:
        assert force
        assert mask is None or mask.name == "labels.nii.gz"
        return scan.parent.name

    def check_question(self, text: str) -> None:
        if len(text) > 90:
            raise InputError("question", "length", "long", "short", "ask less")

    def run(self, asked: Any, **_: Any) -> Any:
        return [SimpleNamespace(text=f"{case}: {text}") for case, text in asked]


def test_model_is_asked_with_options_and_another_scan(
    asked: QuestionFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ct1", "ct2"):
        (tmp_path / name).mkdir()
        for file in ("ct", "labels"):
            (tmp_path / name / f"{file}.nii.gz").touch()
    monkeypatch.setattr(answerers.Analyzer, "load", lambda *_, **__: ModelStub())
    model = make_answerer("nano", asked, "mc", scans=tmp_path, mismatched=True)
    assert isinstance(model, ModelAnswers)
    texts = model.answer("ct1", asked.questions[:2])
    assert texts[0] == "ct2: How large is the spleen?\nA. Normal\nB. Moderate\nC. Severe\nD. Mild"
    assert texts[1] == "ct2: Does the liver hold a lesion?\nA. No\nB. Yes"
    long = Question(**{**vars(asked.questions[0]), "question": "Why? " * 30})
    assert model.answer("ct1", [long])[0].startswith("[ERROR] InputError: question")
    alone = QuestionFile(**{**vars(asked), "questions": asked.questions[:1]})
    with pytest.raises(InputError, match="one CT"):
        make_answerer("nano", alone, "mc", scans=tmp_path, mismatched=True)
