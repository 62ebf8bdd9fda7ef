"""What is read back from a run: checks, the chain of custody, exports, the card."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import stand_in_agents

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data.schema import Record, RoundTarget
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.case import Case, CaseResult
from tumorchain_jax.engine.cases import read_cases
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.run import card, show
from tumorchain_jax.engine.run.export import export
from tumorchain_jax.engine.run.outputs import FILES, SUMS, sha256_of
from tumorchain_jax.engine.run.reading import find, read_stored
from tumorchain_jax.engine.run.run import run
from tumorchain_jax.engine.run.screen import alike, asked_text, fault, screen, word_grams
from tumorchain_jax.engine.run.store import Head
from tumorchain_jax.engine.run.verify import verify

MakeCases = Callable[..., Path]
EVIL = "</script><script>alert(1)</script><img src=x onerror=y>"


def go(folder: Path, cases: Path, process=stand_in_agents.say) -> Path:
    with local_workers(1) as workers:
        run(folder, read_cases(cases), process, {"seed": 0}, workers)
    return folder


@pytest.fixture(scope="module")
def first(list_cases: MakeCases) -> Path:
    """A run of twelve cases by rules."""
    cases = list_cases(12)
    return go(cases.parent / "out", cases, process)


@pytest.fixture
def done(first: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(first, tmp_path / "out")
    return tmp_path / "out"


def signed(folder: Path) -> None:
    """Write the checksums anew, so that nothing but the content of the files can be at fault."""
    sums = "".join(f"{sha256_of(folder / name)}  {name}\n" for name in FILES)
    (folder / SUMS).write_text(sums)


def test_a_run_verifies(done: Path) -> None:
    checked = verify(done)
    assert (checked.cases, checked.problems) == (12, 0), checked.shown
    assert checked.records == len((done / "records.jsonl").read_text().splitlines()) > 100
    assert checked.claims > checked.records
    (done / SUMS).unlink()
    with pytest.raises(InputError, match="expected the outputs of a run that is complete"):
        verify(done)


def test_every_change_of_a_token_is_caught(done: Path) -> None:
    draw = random.Random(0)
    for _ in range(30):
        path = done / draw.choice(FILES)
        before = path.read_bytes()
        words = before.split(b" ")
        words[draw.randrange(len(words))] += b"x"
        path.write_bytes(b" ".join(words))
        assert verify(done).problems
        path.write_bytes(before)
    assert not verify(done).problems


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("records", ("10 mm", "11 mm"), "changed since its id was given"),
        ("records", ("answer is hypodense", "answer is hyperdense"), "changed since its id was"),
        ("traces", ("there is a mass", "there was a mass"), "is not in its chain"),
        ("traces", ('"object": "hypodense"', '"object": "hyperdense"'), "do not say so"),
        ("traces", ('"subject": "liver lesion 1"', '"subject": "spleen lesion 1"'), "step"),
        (
            "traces",
            ('"level": "finding"', '"level": "impression"'),
            "an impression without an edge",
        ),
        ("traces", ('"facts": ["', '"facts": ["0'), "is neither a fact nor an edge"),
        ("traces", ('"edges": ["', '"edges": ["0'), "is neither a fact nor an edge"),
        ("traces", ('"answer_facts": ["', '"answer_facts": ["0'), "is neither a fact nor an edge"),
        ("traces", ('"record": "', '"record": "0'), "changed since its id was given"),
        ("traces", ('"graph": "', '"graph": "0'), "of another knowledge graph"),
        ("facts", ('"value": "hypodense"', '"value": "hyperdense"'), "changed"),
        ("facts", ('"start": 1', '"start": 2'), "its quote does not stand where it says"),
        ("facts", ('"quote": "', '"quote": "x'), "its quote does not stand where it says"),
        ("documents", ("The liver", "The spleen"), "another text"),
        ("split", ('"p-0"', '"p-x"'), "patient p-0 on no side"),
    ],
)
def test_a_change_is_told_even_if_the_checksums_are_mended(
    name: str, change: tuple[str, str], found: str, done: Path
) -> None:
    path = done / ("split.json" if name == "split" else f"{name}.jsonl")
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    signed(done)
    checked = verify(done)
    assert checked.problems
    assert any(found in line for line in checked.shown), checked.shown


def test_claims_that_rest_on_nothing_are_told(make_cases: MakeCases, tmp_path: Path) -> None:
    def careless(case: Case) -> CaseResult:
        result = process(case)
        bare = [
            replace(
                trace,
                steps=tuple(
                    replace(step, claims=tuple(replace(c, facts=(), edges=()) for c in step.claims))
                    for step in trace.steps
                ),
            )
            for trace in result.traces
        ]
        return replace(result, traces=tuple(bare))

    folder = go(tmp_path / "out", make_cases(1), careless)
    checked = verify(folder)
    assert checked.problems > checked.records > 5
    assert any("an impression without an edge of the graph" in line for line in checked.shown)


class Tags(HTMLParser):
    def __init__(self, html: str):
        super().__init__()
        self.names: list[str] = []
        self.marked = ""
        self._in_mark = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.names.append(tag)
        self._in_mark = tag == "mark"
        assert not any(name.startswith("on") or name == "src" for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        self._in_mark = False

    def handle_data(self, data: str) -> None:
        self.marked += f"[{data}]" if self._in_mark else ""


def test_chain_of_custody_shows_the_words_that_a_record_rests_on(done: Path) -> None:
    first = next(case for case in read_stored(done) if case.records)
    trace = next(kept.trace for kept in first.records if kept.record.subtask == "cot_report")
    case, kept = find(done, trace.record[:10])
    graph = shipped_graph()
    words = ("mass", "hyperdense", "hypodense", " mm", "segment VII")
    tags = Tags(show.html(case, kept, graph))
    assert "mass]" in tags.marked
    lines = show.text(case, kept, graph).splitlines()
    assert f"question: {kept.record.question}" in lines
    quoted = [line for line in lines if line.startswith("    fact ")]
    assert quoted
    assert all(any(word in line for word in words) for line in quoted)
    assert any(line.startswith("    edge ") and "(level " in line for line in lines)
    with pytest.raises(InputError, match="record 0000000000000000: found 0 of them, expected one"):
        find(done, "0" * 16)
    assert find(done, "")[1].trace == first.records[0].trace


def test_markup_in_reports_and_names_stays_text(make_cases: MakeCases, tmp_path: Path) -> None:
    path = make_cases(1)
    report = path.parent / "reports" / "c-0.txt"
    report.write_text(f"{EVIL} a hypodense mass of 12 mm {EVIL}")
    path.write_text(path.read_text().replace("s-0", EVIL.replace('"', "")))
    (case,) = read_stored(go(tmp_path / "out", path))
    html = show.html(case, case.records[0], shipped_graph())
    assert not {"script", "img"} & {*Tags(html).names}
    assert "&lt;img src=x onerror=y&gt;" in html


def test_export_has_the_records_of_both_sides_and_nothing_of_the_reports(
    make_cases: MakeCases, tmp_path: Path
) -> None:
    folder = go(tmp_path / "out", make_cases(60))
    counts = export(folder, tmp_path / "export")
    assert {path.name for path in (tmp_path / "export").iterdir()} == {
        "train.jsonl", "test.jsonl", "split.json", "README.md",
    }  # fmt: skip
    split = json.loads((tmp_path / "export" / "split.json").read_text())
    everything = []
    for side, count in counts.items():
        lines = (tmp_path / "export" / f"{side}.jsonl").read_text().splitlines()
        assert len(lines) == count > 0
        assert {json.loads(line)["patient"] for line in lines} <= {*split[side]}
        everything += lines
    assert sorted(everything) == sorted((folder / "records.jsonl").read_text().splitlines())
    assert (tmp_path / "export" / "README.md").read_text().startswith("---\nconfigs:\n")
    with pytest.raises(InputError, match="found there already"):
        export(folder, tmp_path / "export")


def test_card_counts_what_was_written(make_cases: MakeCases, tmp_path: Path) -> None:
    text = (go(tmp_path / "out", make_cases(40)) / "README.md").read_text()
    for row in (
        "| records | 180 | 1,497,818 |",
        "| records a scan | 5.0 | 36.5 |",
        "| **lesion attributes** | 72 | 40.00% | 898,841 (60.01%) |",
        "| tumor position | liver | 100.00% |",
        "| no lesion is described | 4 | 100.00% |",
        "| reasoner: rules | 180 | 100.00% |",
        "| radiology, en | 40 | 80.00% |",
        f"| knowledge graph | {shipped_graph().version} |",
    ):
        assert row in text
    assert "Above 60% in tumor position, density, count, tumor, cot report" in text
    assert "CT and pathology differ in 10 places" in text


def test_card_cannot_be_broken_by_what_it_counts() -> None:
    made = card.Card({"agents": "a\nb"}, "natural")
    reason = json.dumps({"reason": f"{EVIL} | x | `y`\n# z"})
    made.add(Head("c", "d", rejected={"x": 1}), {"rejected": [reason]})
    text = made.text({"train": [], "test": []}, 0)
    assert "<script" not in text
    assert "\n# z" not in text
    row = next(line for line in text.splitlines() if "alert" in line)
    assert row.count("|") == 4


def record(question: str, answer: str, *choices: str, subtask: str = "density") -> Record:
    rounds = (RoundTarget("Look."), RoundTarget(f"Thus, the answer is {answer}.", (5,)))
    task = "position" if subtask.endswith("position") else "lesion_attributes"
    return Record("p", 0, task, subtask, 5, question, choices, rounds, "", answer)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (record("What is the density of the lesion?", "hypodense"), ""),
        (record("What is the density of the hypodense lesion?", "hypodense"), "answer in its"),
        (record("Is it hypodense or hyperdense?", "hypodense"), ""),
        (record("It is hypodense. Is it round or oval?", "hypodense"), "answer in its question"),
        (record("What is the density?", "hypodense", "hypodense", "hyperdense"), ""),
        (record("Where is it: upper, middle or lower third?", "upper third",
                subtask="organ_position"), ""),
        (replace(record("What is the density?", "hypodense"), answer="hyperdense"), "does not end"),
    ],
)  # fmt: skip
def test_records_that_are_left_out(made: Record, found: str) -> None:
    assert found in fault(made)
    assert bool(found) == bool(fault(made))


def test_repeated_questions_about_a_scan_are_left_out() -> None:
    long = " ".join(f"word{n}" for n in range(120))
    records = [
        record("What is the density?", "hypodense"),
        record("What  is the DENSITY ?", "hyperdense"),
        record("What is the density?", "hypodense", "hypodense", "hyperdense"),
        record("What is the density?", "hypodense", "hyperdense", "hypodense"),
        record(f"{long} one?", "hypodense"),
        record(f"{long} two?", "hypodense"),
        replace(record("What is the density?", "hypodense"), scan=1),
    ]
    kept, left_out = screen(records)
    assert kept == [0, 2, 4, 6]
    assert left_out == {"duplicate question": 2, "near-duplicate question": 1}
    first, second = (word_grams(asked_text(each)) for each in records[4:6])
    assert alike(first, second) == pytest.approx(len(first & second) / len(first | second))
    assert len(first & second) / len(first | second) > 0.9
