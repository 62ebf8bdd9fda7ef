import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.evaluation.ask import Asked
from tumorchain_jax.evaluation.failures import KINDS, choose, failures_page, kind_of
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.patients import Patients
from tumorchain_jax.inference.analyzer import PreparedCase
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE
from tumorchain_jax.reasoning.trace import OrganMention, Round, Trace
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.shell import POLICY

EVIL = '<script>alert("x")</script><img src=x onerror=y>'


def item(subtask: str, truth: str, parsed: str, right: bool = False, **values: Any) -> Item:
    fields: dict[str, Any] = {
        "patient": "p",
        "task": TASK_OF[subtask],
        "subtask": subtask,
        "organ": "",
        "question": "q?",
        "choices": (),
        "truth": truth,
        "answer": f"Thus, the answer is {parsed}.",
        "parsed": parsed,
        "right": right,
    }
    return Item(**fields | values)


@pytest.mark.parametrize(
    ("subtask", "truth", "parsed", "kind"),
    [
        ("tumor_position", "none", "liver", "false alarm"),
        ("tumor_position", "no", "yes", "false alarm"),
        ("cot_report", "none", "liver", "false alarm"),
        ("tumor_position", "liver", "none", "missed"),
        ("tumor_position", "yes", "no", "missed"),
        ("cot_report", "liver", "none", "missed"),
        ("cot_report", "liver; T2", "-; T2", "missed"),
        ("segment_localization", "cecum", "none", "missed"),
        ("density", "hypodense", "none", "missed"),
        ("tumor_position", "liver", "stomach", "wrong organ"),
        ("tumor_position", "liver", "liver or stomach", "wrong organ"),
        ("cot_report", "liver; T2", "colon; T2", "wrong organ"),
        ("segment_localization", "cecum", "rectum", "wrong part"),
        ("organ_position", "upper third", "lower third", "wrong part"),
        ("cot_report", "colon; cecum", "colon; rectum", "wrong part"),
        ("shape", "round", "irregular", "wrong attribute"),
        ("count", "2", "3", "wrong attribute"),
        ("others", "calcification", "none", "wrong attribute"),
        ("others", "none", "calcification", "wrong attribute"),
        ("tumor", "T2", "T3", "wrong stage"),
        ("node", "N0", "N1", "wrong stage"),
        ("metastasis", "M0", "M1", "wrong stage"),
        ("cot_report", "liver; T2; N0", "liver; T2; -", "wrong stage"),
        ("shape", "round", "", "no answer"),
    ],
)
def test_kinds(subtask: str, truth: str, parsed: str, kind: str) -> None:
    assert kind_of(item(subtask, truth, parsed)) == kind


def test_kinds_take_turns_and_patients_too() -> None:
    position, shape = item("tumor_position", "liver", "none"), item("shape", "round", "oval")
    right = item("shape", "round", "round", right=True)
    items = [[right], [shape, position, shape], [shape], [shape, right], [position]]
    everything = choose(items)
    assert [(number, kind_of(wrong)) for number, wrong in everything] == [
        (1, "missed"),
        (4, "missed"),
        (1, "wrong attribute"),
        (2, "wrong attribute"),
        (3, "wrong attribute"),
    ]
    assert choose(items, 3) == [*everything[:2], everything[2]]
    assert choose(items, 2) == [everything[0], everything[2]]
    assert choose([[right]]) == []


class Two(Patients):
    """One with a tumour in the liver; a healthy one with a look-alike in the right kidney."""

    source = "two"

    def __init__(self, case: Callable[[str], PreparedCase]):
        self.case = case

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> Asked:
        return self.case(f"s{number}"), []

    def truth(self, number: int) -> ModelScan:
        grid = self.case("").scan.image.shape
        maps = {field.name: np.zeros(grid, np.uint8) for field in fields(ModelScan)}
        if number == 0:
            maps["lesions"][1, 2, 3] = 1
            maps["labels"][1, 2, 3] = 5
        else:
            maps["others"][3, 6, 7] = LOOK_ALIKE
            maps["labels"][3, 6, 7] = 2
        return ModelScan(**maps)


@pytest.fixture
def tell(case: Callable, scripted: Callable) -> Callable[[list[list[Item]]], str]:
    """The page, of a model that looks at the liver and then writes its answer."""

    def chain(asked: PreparedCase, question: str) -> Report:
        liver = OrganMention(5, "liver", "liver", (0, 5), "looked_at", (0, 1), 0.5)
        rounds = (
            Round(f"liver {EVIL}", (liver,), 9, 9, True, 0.0),
            Round("Thus, the answer is none.", (), 9, 9, True, 0.0),
        )
        return Report(
            question=question,
            answer=rounds[-1].text,
            conclusion="none",
            trace=Trace(rounds, "no_new_organ"),
            image=asked.scan.image,
            transform=asked.scan.transform,
            cells=(2, 2, 2),
            preprocessing={},
            versions={},
            model="",
            weights_sha256="",
            seed=0,
            device="cpu",
            seconds={},
            warnings=(),
            source=asked.source,
        )

    def render(items: list[list[Item]]) -> str:
        analyzer = scripted(lambda scan, question: "")
        analyzer.batch = lambda cases: [chain(*each) for each in cases]
        return failures_page(analyzer, Two(case), items)

    return render


def test_page_shows_wrong_chains_by_kind(tell: Callable) -> None:
    missed = item("tumor_position", "liver", "none")
    alarm = item("tumor_position", "no", "yes", answer="Thus, the answer is yes.")
    right = item("shape", "round", "round", right=True)
    html = tell([[missed, right], [alarm]])
    assert re.findall(r"<h2>([\w ]+ \(\d+ answers\))</h2>", html) == [
        "False alarm (1 answers)",
        "Missed (1 answers)",
    ]
    assert "2 of 3 answers are wrong" in html
    assert html.count('<ol class="chain">') == 2
    assert html.count("looked again at: liver") == 2
    assert html.count("data:image/png;base64,") == 4
    assert "the tumour (liver)" in html
    assert "Look-alikes (cysts, calcifications): right kidney." in html
    # What was scored is not what the model wrote when asked again.
    assert html.count("the model wrote another text") == 1
    assert NOTICE in html
    assert "synthetic" in html
    for kind in ("false alarm", "missed"):
        assert KINDS[kind].replace("'", "&#x27;") in html


def test_page_runs_nothing(tell: Callable) -> None:
    wrong = item("shape", EVIL, EVIL, patient=EVIL, question=EVIL, choices=(EVIL,), answer=EVIL)
    html = tell([[wrong], []])
    assert "<script" not in html
    assert "<img src=x" not in html
    assert POLICY in html
    assert html.count("&lt;script&gt;") == 6  # who, question, choice, answer, truth, a round


def test_page_without_failures_says_so(tell: Callable) -> None:
    html = tell([[item("shape", "round", "round", right=True)]])
    assert "0 of 1 answers are wrong" in html
    assert "<ol" not in html
