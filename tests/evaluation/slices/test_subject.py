"""A model behind a stub endpoint, asked by slices: right, refused, cut off, killed, resumed."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from stub_judge import completion, stub

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.ask import Asked
from tumorchain_jax.evaluation.items import read_items
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.evaluation.score import summary
from tumorchain_jax.evaluation.slices.policy import POLICIES
from tumorchain_jax.evaluation.slices.run import SUBJECT, evaluate_endpoint, recorded_subject
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.scan.volume import Volume

POLICY = POLICIES["axial-center-1"]
KEY = "sk-never-in-a-file"


class Three(Phantoms):
    """Three digital patients with their questions, their CTs small."""

    def __init__(self) -> None:
        self.source, self.count = "three", 3
        self.patients = [make_patient(seed) for seed in range(3)]

    def with_truth(self, number: int) -> tuple[Patient, Asked]:
        patient = self.patients[number]
        case = cast(Any, SimpleNamespace())
        return patient, (case, patient_records(patient, number))

    def tumour_mm(self, number: int) -> float | None:
        return None


@pytest.fixture(scope="module")
def three() -> Three:
    return Three()


def run(
    three: Three, folder: Path, answer: Any, name: str = "out", **fields: Any
) -> tuple[dict[str, Any], str, Counter[str]]:
    with stub(answer) as (url, calls):
        endpoint = Endpoint("stub", url, "some-vlm", timeout_s=5.0, deadline_s=8.0, **fields)
        score, text = evaluate_endpoint(endpoint, POLICY, three, folder / name)
    return score, text, calls


def all_records(three: Three) -> list[Record]:
    return [record for number in range(3) for record in three.with_truth(number)[1][1]]


def knows(three: Three) -> Any:
    """A model that knows the truth of every question, by the picture and the words."""
    truths = {}
    for number in range(3):
        patient, (_, records) = three.with_truth(number)
        picture = json.dumps(_url(patient.ct))
        truths |= {(picture, _first_line(r.question)): r.answer for r in records}

    def answer(asked: dict[str, Any], before: int) -> tuple[int, bytes]:
        parts = asked["messages"][1]["content"]
        (picture,) = (json.dumps(p["image_url"]["url"]) for p in parts if p["type"] == "image_url")
        question = parts[-1]["text"].splitlines()[0]
        return completion(f"First, I look.\n\nConclusion: {truths[picture, question]}")

    return answer


def _first_line(text: str) -> str:
    return text.splitlines()[0]


def _url(ct: Volume) -> str:
    from tumorchain_jax.llm.request import Message

    parts = Message("user", POLICY.parts(ct)).to_json()["content"]
    return next(p["image_url"]["url"] for p in parts if p["type"] == "image_url")


def test_right_answers_are_right_and_scored_again_alike(
    three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_KEY", KEY)
    score, text, _ = run(three, tmp_path, knows(three), key_env="STUB_KEY")
    items = read_items(tmp_path / "out" / "items.jsonl")
    wrong = [(item.subtask, item.truth, item.parsed) for item in items if not item.right]
    assert not wrong
    assert score["average"] == score["slices"]["skill"]["average"] == 100
    assert json.loads(json.dumps(summary(items))) == json.loads(
        (tmp_path / "out" / "score.json").read_text()
    )
    assert all(item.chain and item.reference for item in items)
    unfit = {item.subtask for item in items if item.withheld.startswith("not answerable")}
    assert unfit <= {"count", "tumor", "node", "cot_report", "organ_position"}
    assert score["slices"]["skill"]["n"] == len([i for i in items if not i.withheld])
    for words in ("axial-center-1 v1", POLICY.sha256[:12], "some-vlm", "on a slice that was sent"):
        assert words in text
    kept = json.loads((tmp_path / "out" / SUBJECT).read_text())
    assert kept["slices_sha256"] == POLICY.sha256
    assert recorded_subject(tmp_path / "out" / "items.jsonl") == "some-vlm"
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


def test_share_of_visible_lesions_is_that_of_the_masks(three: Three, tmp_path: Path) -> None:
    score, _, _ = run(three, tmp_path, lambda *_: completion("Conclusion: liver"))
    text = (tmp_path / "out" / "sent.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    reports = {
        line["patient"]: line["visible"] for line in lines if line["subtask"] == "cot_report"
    }
    for number in range(3):
        patient, (_, records) = three.with_truth(number)
        # Its third axis goes upwards.
        height = patient.ct.shape[2]
        middle = patient.lesion_map.voxels[:, :, height - 1 - height // 2]
        expected = bool(middle.any()) if patient.lesions else None
        assert reports[records[0].patient] is expected
    about = [line["visible"] for line in lines if line["visible"] is not None]
    assert score["slices"]["visible"]["n"] == len(about)
    assert score["slices"]["visible"]["share"] == round(100 * float(np.mean(about)), 1)


def test_what_is_not_said_is_counted_apart(three: Three, tmp_path: Path) -> None:
    def answer(asked: dict[str, Any], before: int) -> tuple[int, bytes]:
        question = asked["messages"][1]["content"][-1]["text"]
        if "shape" in question:
            return completion("", "content_filter")
        if "densi" in question or "attenuat" in question:
            return 400, b'{"error": {"message": "no"}}'
        return completion("Conclusion: purple")

    score, text, _ = run(three, tmp_path, answer)
    states = score["slices"]["states"]
    assert sum(states.values()) == len(all_records(three))
    assert states["refused"] >= 1
    assert states["failed"] >= 1
    assert states["unread"] >= 10
    assert "without a reply wrong, or right" in text
    low, high = score["slices"]["bounds"]
    assert low < high
    kinds = Counter(
        item.withheld.partition(":")[0] for item in read_items(tmp_path / "out/items.jsonl")
    )
    assert kinds["no reply"] == states["failed"]


def test_a_stopped_run_asks_nothing_twice(three: Three, tmp_path: Path) -> None:
    count = 0

    def dies(asked: dict[str, Any], before: int) -> tuple[int, bytes]:
        nonlocal count
        count += 1
        return completion("Conclusion: liver") if count <= 10 else (401, b"{}")

    with pytest.raises(InputError):
        run(three, tmp_path, dies, concurrency=1)
    assert not (tmp_path / "out").exists()
    _, _, calls = run(three, tmp_path, lambda *_: completion("Conclusion: liver"))
    distinct = len({(r.patient, r.question, r.choices) for r in all_records(three)})
    assert calls.total() == distinct - 10
