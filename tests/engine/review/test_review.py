"""The review of a sample: what is drawn, the pages, the verdicts, the rates."""

import base64
import hashlib
import http.client
import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stand_in_agents

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.cases import read_cases
from tumorchain_jax.engine.review.page import page_name, write_review
from tumorchain_jax.engine.review.sample import draw, read_sample
from tumorchain_jax.engine.review.server import HOST, ReviewServer
from tumorchain_jax.engine.review.verdicts import (
    CORRECTED,
    rate,
    read_verdicts,
    summary,
    text,
    write_corrected,
)
from tumorchain_jax.engine.run.run import run
from tumorchain_jax.evaluation.agreement import kappa

MakeCases = Callable[..., Path]
EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def done(list_cases: MakeCases) -> Path:
    """A run of forty cases, one with markup in its report."""
    path = list_cases(40)
    report = path.parent / "reports" / "c-1.txt"
    report.write_text(f"\U0001f9d1 {EVIL} a hypodense mass of 12 mm")
    with local_workers(1) as workers:
        run(path.parent / "out", read_cases(path), stand_in_agents.say, {}, workers)
    return path.parent / "out"


@pytest.fixture(scope="module")
def made(done: Path) -> Path:
    """A review of all its records."""
    write_review(done, done.parent / "review", ["A", "B"], 1000, 0)
    return done.parent / "review"


@pytest.fixture
def review(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made, tmp_path / "review")
    return tmp_path / "review"


def data_of(html: str) -> dict:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert len(found) == 1
    return json.loads(found[0])


def verdicts_of(folder: Path, reviewer: str, **verdicts: object) -> Path:
    sample = read_sample(folder).digest
    content = {"format": 1, "sample": sample, "reviewer": reviewer, "verdicts": verdicts}
    path = folder / f"{reviewer}.json"
    path.write_text(json.dumps(content))
    return path


def test_sample_has_every_subtask_in_proportion(done: Path) -> None:
    sample = draw(done, 50, 0)
    assert Counter(sample.subtasks.values()) == dict.fromkeys(
        ("tumor_position", "density", "count", "tumor", "cot_report"), 10
    )
    assert draw(done, 50, 0) == sample
    assert draw(done, 50, 1) != sample
    assert len(draw(done, 3, 0).subtasks) == 5  # one of each at least
    assert len(draw(done, 10**6, 0).subtasks) == 180


def test_pages_show_the_records_as_data_alone(review: Path) -> None:
    assert {path.name for path in review.iterdir()} == {
        "sample.json", page_name("A"), page_name("B"),
    }  # fmt: skip
    html = (review / page_name("A")).read_text()
    data = data_of(html)
    assert (data["reviewer"], len(data["items"])) == ("A", 180)
    assert html.count("<script") == 2
    assert "alert(1)</script>" not in html
    code = re.findall(r"<script>(.*?)</script>", html, re.S)[0]
    allowed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in html
    item = next(item for item in data["items"] if item["scan"] == "s-1")
    report = data["documents"][item["documents"][0]]["text"]
    units = report.encode("utf-16-le")  # as JavaScript counts
    words = [units[2 * start : 2 * end].decode("utf-16-le") for _, start, end in item["marks"]]
    assert words == ["hypodense", "mass", "12 mm"]
    other = data_of((review / page_name("B")).read_text())
    assert [each["id"] for each in other["items"]] != [each["id"] for each in data["items"]]
    assert {each["id"] for each in other["items"]} == {each["id"] for each in data["items"]}


@pytest.mark.parametrize("names", [["a/b"], [""], ["A", "a"], ["ä"], ["x" * 50]])
def test_reviewers_that_no_file_can_be_named_after(
    names: list[str], done: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="--reviewers: found"):
        write_review(done, tmp_path / "review", names, 10, 0)
    assert not (tmp_path / "review").exists()


def test_kappa_and_rates_are_those_of_the_books() -> None:
    # The worked example of many textbooks: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no.
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(["y"], ["y"]) is None
    assert kappa([], []) is None
    assert kappa(["y", "n"], ["n", "y"]) == pytest.approx(-1)
    paper = rate(4794, 5000)
    assert (paper.percent, round(paper.low, 1), round(paper.high, 1)) == (95.88, 95.3, 96.4)
    assert rate(0, 0).percent == 0


def test_verdicts_give_rates_by_task_and_agreement(review: Path) -> None:
    ids = sorted(read_sample(review).subtasks)[:8]
    good, fair, bad = (
        {"usable": True, "quality": "high"}, {"usable": True, "quality": "acceptable"},
        {"usable": False, "note": "wrong side"},
    )  # fmt: skip
    one = dict(zip(ids, [good] * 4 + [fair] * 2 + [bad] * 2, strict=True))
    two = dict(zip(ids, [good] * 5 + [fair, bad, {"note": "unsure"}], strict=True))
    sample = read_sample(review)
    files = dict(
        read_verdicts(verdicts_of(review, name, **verdicts), sample)
        for name, verdicts in (("A", one), ("B", two))
    )
    facts = summary(sample, files)
    everything = facts["reviewers"]["A"]["all"]
    assert (everything["usable"].count, everything["usable"].total) == (6, 8)
    assert (everything["high"].count, everything["high"].total) == (4, 6)
    by_task = [
        rates["usable"].total for name, rates in facts["reviewers"]["A"].items() if name != "all"
    ]
    assert sum(by_task) == 8
    agreement = facts["agreement"]["A and B"]
    assert agreement["judged by both"] == 7
    assert agreement["kappa usable"] == 1.0
    assert agreement["graded by both"] == 6
    assert 0 < agreement["kappa quality"] < 1
    lines = text(facts)
    assert "A, all: usable 75.00 % (40.9 to 92.9, n = 8); of high quality 66.67 %" in lines
    assert "usable 95.88 %, of high quality 97.85 %" in lines


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"format": 2}, "format: found 2"),
        ({"sample": "0"}, "expected .*, the sample of this review"),
        ({"reviewer": ""}, "reviewer: found ''"),
        ({"verdicts": []}, "verdicts: found"),
        ({"verdicts": {"0": {}}}, "verdicts: found '0', expected records of the sample"),
        ({"verdicts": {"ID": {"usable": "yes"}}}, "expected usable as true or false"),
        ({"verdicts": {"ID": {"usable": True, "quality": "good"}}}, "high or acceptable or poor"),
        ({"verdicts": {"ID": {"usable": False, "quality": "high"}}}, "quality: found 'high'"),
        ({"verdicts": {"ID": {"verdict": 1}}}, "expected an object of answer, at, note"),
        ({"verdicts": {"ID": {"note": 1}}}, "and texts"),
    ],
)
def test_verdict_files_that_are_none(change: dict, found: str, review: Path) -> None:
    path, id = verdicts_of(review, "A"), next(iter(read_sample(review).subtasks))
    content = json.dumps(json.loads(path.read_text()) | change)
    path.write_text(content.replace('"ID"', f'"{id}"'))
    with pytest.raises(InputError, match=found):
        read_verdicts(path, read_sample(review))


def test_records_corrected_in_place_can_be_prepared(done: Path, review: Path) -> None:
    sample = read_sample(review)
    ids = [id for id, subtask in sorted(sample.subtasks.items()) if subtask == "tumor"]
    right = {"usable": True, "text": "<think> x </think> Thus, the answer is T3.", "answer": "T3"}
    half = {"usable": True, "answer": "T4"}  # the text still says T2
    files = dict(
        read_verdicts(path, sample)
        for path in (
            verdicts_of(review, "A", **{ids[0]: right, ids[1]: half, ids[2]: right}),
            verdicts_of(review, "B", **{ids[0]: right, ids[2]: half}),
        )
    )
    written, problems = write_corrected(done, review, files)
    assert written == 1
    assert sorted(problems) == sorted(
        [f"{ids[2]}: corrected in two ways", f"{ids[1]}: text that does not end with the answer"]
    )
    (line,) = (review / CORRECTED).read_text().splitlines()
    record = Record.from_values(json.loads(line) | {"scan": 0})
    assert (record.answer, record.rounds[-1].text) == ("T3", right["text"])


@pytest.fixture
def server(review: Path) -> Iterator[ReviewServer]:
    with ReviewServer(review, "A") as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: ReviewServer, method: str, path: str, body: str = "", host: str = "") -> tuple:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=10)
    headers = {"Host": host or f"{HOST}:{server.server_port}"}
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def test_server_hands_out_one_page_and_keeps_its_verdicts(
    server: ReviewServer, review: Path
) -> None:
    root = f"/{server.token}/"
    assert ask(server, "GET", root) == (200, (review / page_name("A")).read_text())
    assert ask(server, "GET", f"{root}verdicts")[0] == 204
    body = verdicts_of(review, "A").read_text()
    assert ask(server, "POST", f"{root}verdicts", body)[0] == 204
    assert ask(server, "GET", f"{root}verdicts") == (200, body)
    for other in (verdicts_of(review, "B").read_text(), "{", body.replace("1", "7", 1)):
        assert ask(server, "POST", f"{root}verdicts", other)[0] == 400
    assert (review / "verdicts-A.json").read_text() == body
    assert not list(review.glob(".*"))


@pytest.mark.parametrize(
    "path", ["/", "/verdicts", "/x/", "{root}review-B.html", "{root}../sample.json", "{root}B.json"]
)
def test_server_hands_out_nothing_else(path: str, server: ReviewServer) -> None:
    assert ask(server, "GET", path.format(root=f"/{server.token}/"))[0] == 404


def test_server_answers_no_other_host_name(server: ReviewServer) -> None:
    assert ask(server, "GET", f"/{server.token}/", host="evil.example")[0] == 404


def test_server_of_somebody_without_a_page(review: Path) -> None:
    with pytest.raises(InputError, match="reviewer: found C"):
        ReviewServer(review, "C")
    with ReviewServer(review, "A") as one, pytest.raises(InputError, match="--port: found"):
        ReviewServer(review, "B", one.server_port)
