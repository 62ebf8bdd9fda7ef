from collections.abc import Callable
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.evaluation import ask as module
from tumorchain_jax.evaluation.ask import Asked, ask
from tumorchain_jax.evaluation.patients import Patients
from tumorchain_jax.evaluation.resume import answers_path, ask_all


class Few(Patients):
    """Six patients; the n-th has n lesions."""

    def __init__(self, case: Callable, record: Callable, source: str = "six"):
        self.case, self.record, self.source = case, record, source
        self.made: list[int] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Asked:
        self.made.append(number)
        questions = [self.record(f"p{number}", "count", "how many?", str(number + 1))]
        return self.case(f"s{number}"), questions * 2

    def truth(self, number: int) -> ModelScan:
        raise AssertionError


@pytest.fixture
def few(case: Callable, record: Callable) -> Few:
    return Few(case, record)


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENTS_AT_ONCE", 2)


def sees(scan: str, question: str) -> str:
    return "3"


def stop_at(scan: str) -> Callable[[str, str], str]:
    def script(seen: str, question: str) -> str:
        if seen == scan:
            raise KeyboardInterrupt
        return "3"

    return script


def flat(answers: list) -> list:
    return [item for of_patient in answers for item in of_patient]


def test_stopped_run_goes_on(few: Few, scripted: Callable, tmp_path: Path) -> None:
    path = answers_path(tmp_path / "new" / "out")
    with pytest.raises(KeyboardInterrupt):
        ask_all(scripted(stop_at("s5")), few, path)
    few.made.clear()
    analyzer = scripted(sees)
    answers = ask_all(analyzer, few, path)
    assert flat(answers) == ask(scripted(sees), few)
    assert [len(of_patient) for of_patient in answers] == [2] * 6
    assert {scan for scan, _ in analyzer.asked} == {"s3", "s4", "s5"}  # s3 for the text alone
    again = scripted(sees)
    assert ask_all(again, few, path) == answers
    assert again.asked == []


def test_line_that_was_cut_is_asked_again(few: Few, scripted: Callable, tmp_path: Path) -> None:
    path = tmp_path / ".out.answers.jsonl"
    whole = ask_all(scripted(sees), few, path)
    kept = path.read_bytes()
    path.write_bytes(kept[:-20])
    analyzer = scripted(sees)
    assert ask_all(analyzer, few, path) == whole
    assert {scan for scan, _ in analyzer.asked} == {"s4", "s5"}
    assert path.read_bytes() == kept


def test_nothing_is_saved_without_a_path(few: Few, scripted: Callable, tmp_path: Path) -> None:
    assert flat(ask_all(scripted(sees), few, None)) == ask(scripted(sees), few)
    assert list(tmp_path.iterdir()) == []


def test_answers_of_other_patients_or_another_model_are_refused(
    case: Callable, record: Callable, scripted: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "answers"
    ask_all(scripted(sees), Few(case, record), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="patients: found six, expected half a dozen"):
        ask_all(scripted(sees), Few(case, record, "half a dozen"), path)
    other = scripted(sees)
    other.checkpoint.sha256 = "cd"
    with pytest.raises(InputError, match="checkpoint: found abab"):
        ask_all(other, Few(case, record), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", ["{", "3", '["x"]', '[{"patient": 1}]'])
def test_damaged_line_is_named(few: Few, scripted: Callable, tmp_path: Path, line: str) -> None:
    path = tmp_path / "answers"
    ask_all(scripted(sees), few, path)
    head = path.read_text().splitlines()[0]
    path.write_text(f"{head}\n{line}\n")
    with pytest.raises(InputError, match=r"answers\[2\]"):
        ask_all(scripted(sees), few, path)
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match="answers: "):
        ask_all(scripted(sees), few, path)
