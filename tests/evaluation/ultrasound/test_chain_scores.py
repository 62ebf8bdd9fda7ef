"""Scores of replies: probabilities at the answer's slot, unparsed replies, pairs of arms."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.chain_scores import Lesions, score, scores_text
from tumorchain_jax.evaluation.ultrasound.replies import (
    Reply,
    answer_probability,
    read_replies,
    slot_probability,
)
from tumorchain_jax.ultrasound.chains.record import Levels

NAMES = [f"{number:016x}" for number in range(60)]
TRUE = np.arange(60) % 3 == 0


def lesions() -> Lesions:
    truth = [
        Levels.of(
            {
                "label": ["malignant" if own else "benign"],
                "shape": ["irregular" if own else "oval"],
            }
        )
        for own in TRUE
    ]
    clusters = [str(number // 2) for number in range(60)]
    return Lesions(NAMES, truth, clusters, np.arange(60) // 2 % 3, ["breast"] * 60)


def reply(malignant: bool, probability: float | None = None, shape: str = "oval") -> Reply:
    return Reply(
        f"<reasoning> Its shape is {shape}. </reasoning> <answer> {int(malignant)} </answer>",
        probability,
    )


def test_scores_are_those_of_scikit_learn_and_unparsed_replies_are_wrong() -> None:
    rng = np.random.default_rng(0)
    p = np.clip(0.5 * TRUE + rng.random(60) * 0.6, 0, 1)
    good = {name: reply(p[k] > 0.5, float(p[k])) for k, name in enumerate(NAMES)}
    poor = dict(good)
    for name in NAMES[:6]:
        poor[name] = Reply("<reasoning> Its shape is ov", 0.99)
    del poor[NAMES[6]]
    values = score(lesions(), {"good": [good], "poor": [poor]})
    arm = values["arms"]["good"]
    assert arm["auroc"][0] == pytest.approx(roc_auc_score(TRUE, p), abs=1e-12)
    assert arm["accuracy"][0] == pytest.approx(np.mean((p > 0.5) == TRUE), abs=1e-12)
    assert arm["accuracy"][1] < arm["accuracy"][0] < arm["accuracy"][2]
    assert (arm["unparsed"], arm["missing"], arm["cut"]) == (0, 0, 0)
    other = values["arms"]["poor"]
    assert (other["unparsed"], other["missing"], other["cut"]) == (6, 1, 6)
    halved = np.where(np.arange(60) < 7, 0.5, p)
    assert other["auroc"][0] == pytest.approx(roc_auc_score(TRUE, halved), abs=1e-12)
    right = ((p > 0.5) == TRUE) & (np.arange(60) >= 7)
    assert other["accuracy"][0] == pytest.approx(right.mean(), abs=1e-12)
    assert other["accuracy_of_parsed"] == pytest.approx(right[7:].mean(), abs=1e-12)
    pair = values["pairs"]["poor - good"]
    assert pair["right_only_poor"] == 0
    assert pair["right_only_good"] == ((p > 0.5) == TRUE)[:7].sum()
    assert pair["accuracy"][0] == pytest.approx(-pair["right_only_good"] / 60, abs=1e-12)
    shape = arm["descriptors"]["shape"]
    assert (shape["accuracy"], shape["balanced_accuracy"]) == (pytest.approx(2 / 3), 0.5)
    assert "poor alone right 0" in scores_text(values)
    assert "takes pictures for patients" in scores_text(values)


def test_without_probabilities_answers_count_as_0_and_1() -> None:
    said = {name: reply(bool(own)) for name, own in zip(NAMES, TRUE, strict=True)}
    arm = score(lesions(), {"arm": [said]})["arms"]["arm"]
    assert (arm["auroc"][0], arm["without_probability"]) == (1.0, 60)


def token(text: str, p: float, **others: float) -> dict:
    top = [{"token": name, "logprob": math.log(q)} for name, q in others.items()]
    return {"token": text, "logprob": math.log(p), "top_logprobs": top}


def test_probability_is_read_at_the_slot_of_the_answer() -> None:
    before = [token(each, 1.0) for each in ("<reason", "ing>1 </", "reasoning> <ans", "wer>")]
    slot = token(" 1", 0.6, **{" 0": 0.2, "1": 0.1})
    assert slot_probability([*before, slot]) == pytest.approx(0.7 / 0.9)
    assert slot_probability([*before, token(" ", 1.0), slot]) == pytest.approx(0.7 / 0.9)
    assert slot_probability([*before, token("0", 0.9)]) == pytest.approx(0.1)
    assert slot_probability([*before, token("maybe", 0.9)]) is None
    assert slot_probability(before) is None
    assert answer_probability(1.0, 3.0) == pytest.approx(1 / (1 + math.exp(-2)))
    assert answer_probability(2000.0, 0.0) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="logprob"):
        slot_probability([*before, {"token": "1", "logprob": 3.0}])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "a", "text": "x", "malignant": 1.5}, "malignant: found 1.5"),
        ({"id": "a", "text": "x", "logprobs": "no"}, "logprobs: found"),
        ({"id": "a", "text": "x", "label": 1}, "label: found an unknown field"),
        ({"id": "a"}, "text: found no such field"),
    ],
)
def test_malformed_replies_are_refused(line: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=message):
        read_replies(path)
    path.write_text(json.dumps({"id": "a", "text": "x"}) + "\n" * 2)
    assert list(read_replies(path)) == ["a"]
    path.write_text(2 * (json.dumps({"id": "a", "text": "x"}) + "\n"))
    with pytest.raises(InputError, match="a twice"):
        read_replies(path)
