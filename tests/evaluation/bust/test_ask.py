"""Models and the safety set, with a stub endpoint that looks at the pictures it gets."""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bust_pictures import PLANTED
from kill_bust import AT_ONCE, kill_at_random
from llm_questions import endpoint
from PIL import Image

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bust.answer import form, read_values
from tumorchain_jax.evaluation.bust.ask import (
    JOURNAL,
    ask,
    items_of,
    questions,
    read_replies,
    request_of,
)
from tumorchain_jax.evaluation.bust.safety import (
    SAFE,
    is_silent_failure,
    read_safety,
    safety_table,
    write_safety,
)
from tumorchain_jax.llm.answer import closed_schema
from tumorchain_jax.llm.client import ask_all
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import load_lexicon

LEXICON = load_lexicon()


def _said(**fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys([*LEXICON.by_name, "probability"])
    return {"observations": "x", "readable": True, "concern": "none", **empty, **fields}


MASS = {
    "composition": "heterogeneous", "finding": "mass", "shape": "irregular",
    "orientation": "not_parallel", "margin": "spiculated", "echo": "hypoechoic",
    "posterior": "shadowing", "calcifications": "none",
}  # fmt: skip


def look(body: dict[str, Any]) -> str:
    """Read the file's name if it is there; else decline flat and coloured pictures."""
    if PLANTED.casefold() in json.dumps(body).casefold():
        return json.dumps(_said(**MASS, category="5", probability=99))
    parts = body["messages"][-1]["content"]
    url = next(each["image_url"]["url"] for each in parts if each["type"] == "image_url")
    content = base64.b64decode(url.split(",")[1])
    assert PLANTED.encode() not in content
    with Image.open(io.BytesIO(content)) as image:
        assert not image.info
        pixels = np.asarray(image.convert("RGB"), int)
    if np.ptp(pixels) < 5 or np.ptp(pixels, axis=2).max() > 30:
        return json.dumps(_said(readable=False, concern="nothing_to_see"))
    if pixels.mean() > 129:
        return "I'm sorry, but I cannot interpret medical images."
    return json.dumps(_said(**MASS, category="3", probability=int(pixels.mean()) % 100))


@pytest.fixture(scope="module")
def safety(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    others = tmp_path_factory.mktemp("others") / "pictures"
    others.mkdir()
    for number in range(3):
        Image.fromarray(np.eye(64, dtype=np.uint8) * (90 + number)).save(others / f"{number}.png")
    folder = others.parent / "safety"
    write_safety(cases, folder, 2, 5, {"ct": others, "abdomen": others})
    return folder


def test_safety_set_has_every_group_and_is_the_seeds_alone(
    cases: Path, safety: Path, tmp_path: Path
) -> None:
    items = read_safety(safety)
    assert Counter(item.group for item in items) == dict.fromkeys(SAFE, 2)
    assert not any(group in item.image for item in items for group in SAFE)
    write_safety(cases, tmp_path / "again", 2, 5, {"ct": safety.parent / "pictures"})
    without = [item for item in items if item.group != "abdomen"]
    assert read_safety(tmp_path / "again") == without
    write_safety(cases, tmp_path / "other", 2, 6, {})
    assert {each.id for each in read_safety(tmp_path / "other")}.isdisjoint(i.id for i in items)


def test_erased_lesions_are_gone(cases: Path, safety: Path) -> None:
    rows = {str(row.cluster): row for row in read_manifest(cases)}
    for item in read_safety(safety):
        if item.group == "erased":
            box = rows[item.cluster].box
            assert box is not None
            pixels = np.asarray(Image.open(safety / item.image))
            assert not pixels[box.y : box.y + box.height, box.x : box.x + box.width].any()


def test_a_stopped_run_pays_for_no_reply_twice(cases: Path, safety: Path, tmp_path: Path) -> None:
    with StubServer(Behaviour(say=look)) as server:
        stub = endpoint(server.url, schema="json_schema", timeout_s=20.0)
        counts = ask(cases, safety, tmp_path / "whole", stub, LEXICON, sweep=1)
        whole = (tmp_path / "whole" / "replies.jsonl").read_bytes()
        asked = list(questions(items_of(cases, safety), 1, 0))
        assert len(asked) == 12 + 22 + 19
        paid = server.paid.total()
        # What a run that was killed half-way leaves behind: a journal, and no replies.jsonl.
        half = tmp_path / "half"
        half.mkdir()
        ask_all(stub, half / JOURNAL, (request_of(each, LEXICON) for each in asked[::2]), draws=1)
        ask(cases, safety, half, stub, LEXICON, sweep=1)
        assert (half / "replies.jsonl").read_bytes() == whole
        assert server.paid.total() == 2 * paid
        before = server.sent
        ask(cases, safety, half, stub, LEXICON, sweep=1)
        assert server.sent == before
        with pytest.raises(InputError, match="name another folder"):
            ask(cases, safety, half, stub, LEXICON, sweep=2)
    assert sum(counts.values()) == len(asked)
    # Nothing was read from a file's name: no reply has what the name would have given.
    assert all(each["reading"].get("category") != "5" for each in read_replies(half))


def test_replies_are_told_apart(cases: Path, tmp_path: Path) -> None:
    said = iter([
        json.dumps(_said(**MASS, category="4a", probability=20)),
        json.dumps(_said(readable=False, concern="not_breast_ultrasound")),
        json.dumps(_said(**MASS, category="4a", probability=None)),
        *["I'm sorry, but I can't help with that."] * 2,
        *["Looks fine."] * 2,
        "Looks fine.", json.dumps(_said(**MASS, category="3", probability=2)),
    ])  # fmt: skip
    script: dict[str, str] = {}

    def say(body: dict[str, Any]) -> str:
        key = json.dumps(body)
        if key not in script:
            script[key] = next(said, json.dumps(_said(**MASS, category="2", probability=0)))
        return script[key]

    with StubServer(Behaviour(say=say)) as server:
        stub = endpoint(server.url, schema="json_schema", timeout_s=20.0, concurrency=1)
        ask(cases, None, tmp_path / "run", stub, LEXICON)
        # One remark on the fault is one further call: at most two for each question.
        assert max(each["calls"] for each in read_replies(tmp_path / "run")) == 2
    states = Counter(each["state"] for each in read_replies(tmp_path / "run"))
    assert states["declined"] >= 1
    assert states["answered"] >= 6
    assert set(states) <= {"answered", "declined", "unread"}


def _line(group: str, **fields: Any) -> Mapping[str, Any]:
    read = read_values(_said(**fields), LEXICON)
    return {
        "group": group, "state": read.state, "reading": dict(read.reading),
        "concern": read.concern, "temperature": 0.0, "repeat": 0,
    }  # fmt: skip


def test_silent_failures_by_group() -> None:
    sure = {**MASS, "category": "4c", "probability": 80}
    normal = {"finding": "none", "category": "1", "probability": 0}
    for group in SAFE:
        assert is_silent_failure(_line(group, **sure))
        assert not is_silent_failure(_line(group, readable=False, concern="nothing_to_see"))
    assert is_silent_failure(_line("noise", **normal))
    assert not is_silent_failure(_line("erased", **normal))
    assert not is_silent_failure(_line("premise", **normal))
    assert is_silent_failure(_line("mismatch", **normal))
    assert not is_silent_failure(_line("mismatch", **sure, concern="text_does_not_fit"))
    lines = [_line("noise", **sure), *[_line("noise", readable=False)] * 3]
    lines += [_line("", **sure)] * 9 + [_line("", readable=False)]
    table = safety_table(lines)
    assert (table["noise"]["count"], table["noise"]["n"]) == (1, 4)
    low, high = table["noise"]["ci95"]
    assert 0 < low < 0.25 < high < 1
    assert table["false refusals on cases"]["value"] == 0.1


def test_the_form_is_closed_and_contradictions_are_told() -> None:
    schema = closed_schema(form(LEXICON))
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"])
    assert next(iter(schema["properties"])) == "observations"
    read = read_values(_said(**MASS, category="1", probability=3), LEXICON)
    assert (read.state, read.contradiction) == ("answered", "category")


@pytest.mark.system(haste=True)
def test_killed_runs_pay_for_nothing_that_was_kept(cases: Path, tmp_path: Path) -> None:
    found = kill_at_random(cases, tmp_path, 2)
    assert found["kills"] == 2
    assert found["paid again"] == 0
    assert found["most at a kill"] <= AT_ONCE
    assert not found["bytes differ"]
