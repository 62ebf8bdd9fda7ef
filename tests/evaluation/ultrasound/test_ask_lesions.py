"""The arms put to a model, turn by turn, with controls: pictures and the arm's own words alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from bus_looker import Looker, write_lesions

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.ask_lesions import ask
from tumorchain_jax.evaluation.ultrasound.chain_scores import score_files
from tumorchain_jax.ultrasound.chains.messages import ARMS, LOOK_AGAIN
from tumorchain_jax.ultrasound.chains.write import read_records


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of pictures of one grey value each: bright ones malignant."""
    return write_lesions(tmp_path_factory.mktemp("ask"))


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_asked_turn_by_turn_and_scored(arm: Any, chains: Path, tmp_path: Path) -> None:
    model, output = Looker(), tmp_path / "replies.jsonl"
    model.is_look = arm == "look"
    folds = {values["id"]: values["fold"] for values, _ in read_records(chains)}
    facts = ask(model, chains, arm, 0, output, batch=5)
    replies = [json.loads(line) for line in output.read_text().splitlines()]
    assert facts["asked"] == len(replies) == sum(fold == 0 for fold in folds.values())
    assert {folds[reply["id"]] for reply in replies} == {0}
    for pictures, spoken in model.chats:
        words = json.dumps([texts for _, texts in spoken])
        assert "malignant lesion" not in words
        assert "bus_" not in words
        assert sum(len(texts) - 1 for _, texts in spoken) == len(pictures)
    if arm == "look":
        roles = {tuple(role for role, _ in spoken) for _, spoken in model.chats}
        assert roles == {("user",), ("user", "assistant", "user")}
        last = next(spoken for _, spoken in model.chats if len(spoken) == 3)
        assert last[2][1] == LOOK_AGAIN.split("<image>")
        assert max(len(pictures) for pictures, _ in model.chats) == 2
    values = score_files(chains, {arm: [output]}, "0")
    assert values["arms"][arm]["auroc"][0] == 1.0
    cut = sum("malignant" not in reply for reply in replies)
    assert values["arms"][arm]["unparsed"] == cut == facts["asked"] - facts["with_probability"]


def test_controls_show_nothing_or_another_lesion(
    chains: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind, other = Looker(), Looker()
    ask(blind, chains, "direct", 0, tmp_path / "text.jsonl", "text")
    assert all(not pictures and len(spoken[0][1]) == 1 for pictures, spoken in blind.chats)
    assert "<image>" not in json.dumps([spoken for _, spoken in blind.chats])
    seen = Looker()
    ask(seen, chains, "direct", 0, tmp_path / "seen.jsonl")
    ask(other, chains, "direct", 0, tmp_path / "shuffled.jsonl", "shuffled")
    own, shown = ([chat[0][0].tobytes() for chat in each.chats] for each in (seen, other))
    assert set(own) == set(shown)  # the last batch is filled up
    values = score_files(
        chains, {name: [tmp_path / f"{name}.jsonl"] for name in ("seen", "shuffled")}, "0"
    )
    assert values["pairs"]["shuffled - seen"]["auroc"][0] < -0.1
    replies = [f"{name}={tmp_path / name}.jsonl" for name in ("seen", "text")]
    words = ["bus", "score", "--data", str(chains), "--part", "0", "--replies"]
    assert main([*words, *replies]) == 0
    out = capsys.readouterr().out
    assert "text - seen: AUROC -0." in out
    assert "the given box: aspect, height, width" in out
    assert main([*words, "no-arm"]) == 2
    assert "--replies: found no-arm" in capsys.readouterr().err


def test_rows_that_tell_are_not_asked(chains: Path, tmp_path: Path) -> None:
    path = chains / "asked-direct.jsonl"
    before = path.read_text()
    try:
        path.write_text(before.replace("Is the lesion", "It is malignant. Is the lesion", 1))
        with pytest.raises(InputError, match=r"asked-direct\.jsonl:1: messages"):
            ask(Looker(), chains, "direct", 0, tmp_path / "out.jsonl")
    finally:
        path.write_text(before)
    with pytest.raises(InputError, match="0 lesions of fold 7"):
        ask(Looker(), chains, "direct", 7, tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="or the number of a fold"):
        score_files(chains, {}, "some")
