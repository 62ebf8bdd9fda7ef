"""`tumorchain engine`: from a list of cases to reviewed records, with agents by rules."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer, instance
from tumorchain_jax.cli.main import main

MakeCases = Callable[..., Path]
Capsys = pytest.CaptureFixture[str]


def engine(capsys: Capsys, *words: object, code: int = 0) -> str:
    """Run a subcommand; returns what it printed."""
    assert main(["engine", *map(str, words)]) == code
    return capsys.readouterr().out


def test_a_run_from_its_plan_to_its_export(
    make_cases: MakeCases, tmp_path: Path, capsys: Capsys
) -> None:
    cases, out = make_cases(12), tmp_path / "out"
    plan = json.loads(engine(capsys, "plan", "-i", cases, "--json"))
    assert (plan["cases"], plan["patients"], plan["agents"], plan["price"]) == (12, 6, {}, 0)
    assert plan["reports"] == {"radiology": 12, "pathology": 3}
    words = ("run", "-i", cases, "-o", out, "--workers", 1)
    done = json.loads(engine(capsys, *words, "--json"))
    assert (done["cases"], done["already_done"], done["failed"]) == (12, 0, 0)
    assert done["records"] == plan["records"] > 100
    assert f"cases: 12, of which 12 done by an earlier run\nrecords: {done['records']};" in engine(
        capsys, *words
    )
    assert "complete\ncases: 12 of 12\n" in engine(capsys, "status", out)
    assert f"{done['records']} records, " in engine(capsys, "verify", out)
    assert "# Data set card" in engine(capsys, "card", out)
    id = json.loads((out / "traces.jsonl").read_text().splitlines()[0])["record"]
    assert f"record {id}: " in engine(capsys, "show", out, id, "--text")
    page = tmp_path / "page.html"
    assert engine(capsys, "show", out, id, "-o", page) == f"{page}\n"
    assert "chain of custody" in page.read_text()
    counts = json.loads(engine(capsys, "export", out, "-o", tmp_path / "export", "--json"))
    assert counts["train"] + counts["test"] == done["records"]


def test_a_review_from_its_pages_to_its_rates(
    make_cases: MakeCases, tmp_path: Path, capsys: Capsys
) -> None:
    out, review = tmp_path / "out", tmp_path / "review"
    engine(capsys, "run", "-i", make_cases(4), "-o", out, "--workers", 1)
    told = engine(capsys, "review", out, "-o", review, "--sample", 20, "--reviewers", "X", "Y")
    assert told.splitlines()[1:] == [f"for {n}: {review}/review-{n}.html" for n in "XY"]
    sample = json.loads((review / "sample.json").read_text())
    page = (review / "review-X.html").read_text()
    digest = page.split('"sample": "')[1].split('"')[0]
    for name in "XY":
        verdicts = {id: {"usable": True, "quality": "high"} for id in sample["subtasks"]}
        content = {"format": 1, "sample": digest, "reviewer": name, "verdicts": verdicts}
        (tmp_path / name).write_text(json.dumps(content))
    words = ("review", out, "-o", review, "--verdicts", tmp_path / "X", tmp_path / "Y")
    rates = engine(capsys, *words)
    assert "X, all: usable 100.00 % (" in rates
    assert "X and Y: judged by both " in rates
    facts = json.loads(engine(capsys, *words, "--json"))
    assert facts["reviewers"]["Y"]["all"]["usable"]["percent"] == 100
    assert main(["engine", *map(str, (*words, tmp_path / "X"))]) == 2
    assert "reviewer: found X again" in capsys.readouterr().err
    assert main(["engine", "review", str(out), "-o", str(review)]) == 2
    assert "output: found there already" in capsys.readouterr().err


def test_plan_lists_all_problems(make_cases: MakeCases, tmp_path: Path, capsys: Capsys) -> None:
    cases = make_cases(2)
    cases.write_text(cases.read_text() + "{\n[]\n")
    assert main(["engine", "plan", "-i", str(cases)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2].rsplit(":", 1)[1] for line in lines] == ["3", "4"]
    assert main(["engine", "run", "-i", str(cases), "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


ENDPOINTS = """
[endpoint.far]
url = "https://llm.example/v1"
model = "gpt-4o-mini"
price = {{input = 1.0, output = 2.0}}
[endpoint.near]
url = "{url}"
model = "claude-haiku"
price = {{input = 1.0, output = 2.0}}
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--agent", "reader=rules"], "--agent: found 'reader=rules'"),
        (["--agent", "reasoner=rules", "reasoner=rules"], "each of extractor, reasoner"),
        (["--agent", "reasoner=magic"], "--agent: found magic, expected rules or llm:NAME"),
        (["--agent", "reasoner=llm:none"], "endpoint: found none, expected one of far, near"),
        (["--agent", "reasoner=llm:far"], "url: found llm.example, expected a loopback address"),
        (["--agent", "reasoner=llm:near", "calibrator=llm:near"], "models of two families"),
        (["--agent", "reasoner=llm:near", "--ray"], "--ray: found --ray with a language model"),
        (["--agent", "reasoner=llm:near", "--budget", "-1"], "budget: amount: found -1.0"),
        (["--workers", "0"], "--workers: found 0, expected 1 to 1024"),
    ],
)
def test_a_choice_that_cannot_be_had(
    words: list[str], found: str, make_cases: MakeCases, tmp_path: Path, capsys: Capsys
) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(ENDPOINTS.format(url="http://127.0.0.1:1/v1"))
    command = ["engine", "run", "-i", str(make_cases(1)), "-o", str(tmp_path / "out")]
    assert main([*command, "--endpoints", str(file), *words]) == 2
    error = capsys.readouterr().err
    assert found in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "records.jsonl").exists()


def test_a_run_with_a_language_model_sends_no_identifiers_and_pays_once(
    make_cases: MakeCases, tmp_path: Path, capsys: Capsys
) -> None:
    """The stub's calibrator says what its schema's first values are, whatever that means."""
    bodies: list[str] = []

    def say(body: dict) -> str:
        bodies.append(json.dumps(body))
        return json.dumps(instance(body["response_format"]["json_schema"]["schema"]))

    cases = make_cases(3)
    for report in (cases.parent / "reports").iterdir():
        report.write_text(f"Patient: Mr. John Quillfeather, born 12.03.1950.\n{report.read_text()}")
    with StubServer(Behaviour(say=say)) as server:
        file = tmp_path / "endpoints.toml"
        file.write_text(ENDPOINTS.format(url=server.url))
        words = ["-i", cases, "--endpoints", file, "--agent", "extractor=llm:near"]
        plan = json.loads(engine(capsys, "plan", *words, "--json"))
        run = ("run", *words, "-o", tmp_path / "out", "--workers", 2, "--json")
        assert main(["engine", *map(str, run)]) in (0, 1)  # the stub reads no facts
        capsys.readouterr()
        sent = server.sent
        assert plan["agents"]["extractor"]["calls"] == 4  # reports; the stub is probed as well
        assert plan["price"] > 0
        assert sum("Quillfeather" in body or "1950" in body for body in bodies) == 0
        assert sum("[NAME]" in body for body in bodies) == 4
        assert "Quillfeather" not in (tmp_path / "out" / "documents.jsonl").read_text()
        assert main(["engine", *map(str, run)]) in (0, 1)
        assert server.sent == sent
