import json
from dataclasses import asdict

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, TASK_OF, Record, RoundTarget

RECORD = Record(
    patient="P-7",
    scan=3,
    task="position",
    subtask="tumor_position",
    organ=5,
    question="Où est la tumeur? 肝\n",
    choices=("liver", "none"),
    rounds=(
        RoundTarget("The stomach looks abnormal.", given=True),
        RoundTarget("The liver looks abnormal.", (6,)),
        RoundTarget("It is the liver.", (5, 56)),
    ),
    reasoning="so",
    answer="liver",
)


def changed(**changes: object) -> str:
    return json.dumps(asdict(RECORD) | changes)


def rounds(*changes: dict) -> dict:
    return {"rounds": [{"text": "a", "look_at": [], "given": False} | change for change in changes]}


def without(field: str) -> str:
    values = asdict(RECORD)
    del values[field]
    return json.dumps(values)


def test_record_json_round_trip() -> None:
    line = RECORD.to_json()
    assert "\n" not in line
    assert "肝" in line
    assert Record.from_json(line) == RECORD


def test_tasks_are_the_four_of_table_1() -> None:
    assert list(SUBTASKS) == ["position", "lesion_attributes", "tnm_prediction", "cot_report"]
    assert len(TASK_OF) == 12
    for subtask, task in TASK_OF.items():
        record = Record.from_json(changed(task=task, subtask=subtask))
        assert (record.task, record.subtask) == (task, subtask)


def test_fields_with_a_default_may_be_left_out() -> None:
    line = {
        "patient": "P-7",
        "scan": 3,
        "subtask": "shape",
        "question": "What is its shape?",
        "rounds": [
            {"text": "The colon needs a closer look.", "given": True},
            {"text": "<think> It is round. </think>", "look_at": ["colorectum", 5]},
            {"text": "So it is round."},
        ],
        "answer": "round",
    }
    record = Record.from_json(json.dumps(line))
    assert (record.task, record.organ, record.choices) == ("lesion_attributes", 0, ())
    assert record.reasoning == "<think> It is round. </think> So it is round."
    assert [r.look_at for r in record.rounds] == [(), (20, 5), ()]
    assert [r.given for r in record.rounds] == [True, False, False]
    assert Record.from_json(json.dumps(line | {"organ": "colorectum"})).organ == 20


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ("{", "JSON", "Expecting property name"),
        ("[]", "JSON", "[]"),
        ("", "JSON", "Expecting value"),
        ("[" * 10**5, "JSON", "too many nested brackets"),
        ('{"rounds": ' * 10**5, "JSON", "too many nested brackets"),
        (without("question"), "question", "no such field"),
        (without("rounds"), "rounds", "no such field"),
        (without("subtask"), "subtask", "no such field"),
        (changed(colour="red"), "colour", "an unknown field"),
        (changed(**rounds({"colour": "red"})), "rounds[0].colour", "an unknown field"),
        (changed(rounds=["a"]), "rounds", '["a"]'),
        (changed(rounds="round"), "rounds", '"round"'),
        (changed(rounds=[]), "rounds", "[]"),
        (changed(question=5), "question", "5"),
        (changed(question=" \n"), "question", '" \\n"'),
        (changed(question="Where?\ud800"), "question", "ud800"),
        (changed(patient=""), "patient", '""'),
        (changed(patient="\udcff"), "patient", "udcff"),
        (changed(answer=None), "answer", "null"),
        (changed(answer=" "), "answer", '" "'),
        (changed(answer="spleen"), "answer", '"spleen"'),
        (changed(answer="Liver"), "answer", '"Liver"'),
        (changed(**rounds({"text": 3})), "rounds[0].text", "3"),
        (changed(**rounds({"text": "\ud800"})), "rounds[0].text", "ud800"),
        (changed(**rounds({"given": "false"})), "rounds[0].given", '"false"'),
        (changed(**rounds({"given": 0})), "rounds[0].given", "0"),
        (changed(scan="0"), "scan", '"0"'),
        (changed(scan=-1), "scan", "-1"),
        (changed(scan=True), "scan", "true"),
        (changed(organ="tail"), "organ", '"tail"'),
        (changed(organ=57), "organ", "57"),
        (changed(organ=-1), "organ", "-1"),
        (changed(organ=[1]), "organ", "[1]"),
        (changed(subtask="node"), "task", '"position"'),
        (changed(subtask="segment_localization"), "task", '"position"'),
        (changed(subtask="tail"), "subtask", '"tail"'),
        (changed(task="poetry"), "task", '"poetry"'),
        (changed(**rounds({"look_at": [5]})), "rounds[0].look_at", "[5]"),
        (changed(**rounds({}, {"given": True})), "rounds[1].given", "true"),
        (changed(**rounds({}, {"look_at": [5, 57]})), "rounds[1].look_at", "[5, 57]"),
        (changed(**rounds({}, {"look_at": [0]})), "rounds[1].look_at", "[0]"),
        (changed(**rounds({}, {"look_at": [5, "liver"]})), "rounds[1].look_at", '[5, "liver"]'),
        (changed(**rounds({}, {"look_at": 5})), "rounds[1].look_at", "5"),
        (changed(choices="liver"), "choices", '"liver"'),
        (changed(choices=["liver", 5]), "choices", '["liver", 5]'),
        (changed(choices=["liver", ""]), "choices", '["liver", ""]'),
        (changed(choices=["liver", "none", "Liver "]), "choices", "Liver"),
        (changed(choices=[str(number) for number in range(11)]), "choices", "10"),
    ],
)
def test_malformed_record_is_refused_in_one_line(line: str, field: str, found: str) -> None:
    with pytest.raises(InputError) as error:
        Record.from_json(line, "records.jsonl:7")
    message = str(error.value)
    assert message.startswith("records.jsonl:7: ")
    assert error.value.field == field
    assert found in error.value.found
    assert message.isprintable()
    assert len(message) < 400


def test_refusal_says_what_to_write() -> None:
    with pytest.raises(InputError, match=r'objects \{"text": \.\.\., .*data/README\.md'):
        Record.from_json(without("rounds"))
    with pytest.raises(InputError, match="expected lesion_attributes, the task of shape"):
        Record.from_json(changed(subtask="shape"))
    with pytest.raises(InputError, match="expected one of the choices: 'liver', 'none'"):
        Record.from_json(changed(answer="A"))
