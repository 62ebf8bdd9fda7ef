"""Reports as files: a case list, the texts, the truth; whole or not at all."""

import json
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.phantoms.reports import folder as module
from tumorchain_jax.phantoms.reports.cases import make_case
from tumorchain_jax.phantoms.reports.styles import STYLES


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_reports_are_written_with_their_truth(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["phantoms", "--reports", "24", "-o", str(out), "--seed", "990", "--identifiers"]
    assert main([*words, "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    cases, truth = lines(out / "cases.jsonl"), lines(out / "truth.jsonl")
    assert len(cases) == len(truth) == counts["cases"] == 24
    assert len(list(out.rglob("*.txt"))) == counts["texts"]
    assert {each["style"] for each in truth} == {*STYLES}
    for number, (entry, true) in enumerate(zip(cases, truth, strict=True)):
        assert [*entry] == [
            *("case", "patient", "scans", "radiology", "pathology", "language", "sex", "age")
        ]
        case = make_case(990 + number, STYLES[true["style"]], identifiers=True)
        (radiology,) = entry["radiology"]
        assert (out / radiology).read_bytes().decode() == case.radiology
        for file in entry["pathology"]:
            assert (out / file).read_bytes().decode() == case.pathology
        assert true["statements"] == [each.as_dict() for each in case.statements]
        assert {*true["identifiers"]} == {*entry["radiology"], *entry["pathology"]}


def test_chosen_styles_alone(tmp_path):
    out = tmp_path / "out"
    words = ["phantoms", "--reports", "4", "-o", str(out), "--style", "german", "--style", "typos"]
    assert main(words) == 0
    assert [each["language"] for each in lines(out / "cases.jsonl")] == ["de", "en"] * 2


def test_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(seed, style, identifiers):
        if seed == 3:
            raise OSError(28, "No space left on device")
        return make_case(seed, style, identifiers)

    monkeypatch.setattr(module, "make_case", fail)
    with pytest.raises(OSError, match="space"):
        module.write_reports(tmp_path / "out", 0, 9, [])
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--reports", "3", "--style", "klingon"], "--style: found klingon, expected one of"),
        (["--reports", "0"], "--reports: found 0"),
        (["--style", "german"], "--style: found no --reports"),
        (["--identifiers"], "--identifiers: found no --reports"),
    ],
)
def test_bad_flags_are_refused_in_one_line(words, found, tmp_path, capsys):
    assert main(["phantoms", "-o", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error
    assert not (tmp_path / "out").exists()


def test_folder_that_is_there_is_refused(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert main(["phantoms", "--reports", "2", "-o", str(tmp_path / "out")]) == 2
    assert "there already" in capsys.readouterr().err
