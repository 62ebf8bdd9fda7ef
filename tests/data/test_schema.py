import json
from dataclasses import asdict

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, Record, RoundTarget

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


def test_a_record_survives_one_line_of_json() -> None:
    line = RECORD.to_json()
    assert "\n" not in line
    assert "肝" in line
    assert Record.from_json(line) == RECORD


def test_tasks_and_subtasks_are_those_of_table_1() -> None:
    assert len(SUBTASKS) == 4
    for task, subtasks in SUBTASKS.items():
        for subtask in subtasks:
            record = Record.from_json(changed(task=task, subtask=subtask))
            assert (record.task, record.subtask) == (task, subtask)


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ("{", "record", "Expecting property name"),
        ("[]", "record", "list indices"),
        ("", "record", "Expecting value"),
        (without("question"), "record", "question"),
        (without("rounds"), "record", "rounds"),
        (changed(colour="red"), "record", "colour"),
        (changed(**rounds({"colour": "red"})), "record", "colour"),
        (changed(rounds=["a"]), "record", "'str'"),
        (changed(question=5), "record", "5"),
        (changed(answer=None), "record", "None"),
        (changed(**rounds({"text": 3})), "record", "3"),
        (changed(scan="0"), "record", "'0'"),
        (changed(organ="liver"), "record", "'liver'"),
        (changed(subtask="node"), "subtask", "position/node"),
        (changed(task="poetry"), "subtask", "poetry/tumor_position"),
        (changed(question=" \n"), "question", "' \\n'"),
        (changed(rounds=[]), "rounds", "0"),
        (changed(**rounds({"look_at": [5]})), "rounds", "1"),
        (changed(**rounds({}, {"given": True})), "rounds", "given"),
        (changed(choices=["x"] * 11), "choices", "11"),
        (changed(organ=57), "organ", "57"),
        (changed(organ=-1), "organ", "-1"),
        (changed(**rounds({}, {"look_at": [5, 57]})), "look_at", "[5, 57]"),
        (changed(**rounds({}, {"look_at": [0]})), "look_at", "[0]"),
    ],
)
def test_a_bad_record_is_refused_in_one_line(line: str, field: str, found: str) -> None:
    with pytest.raises(InputError) as error:
        Record.from_json(line, "records.jsonl:7")
    message = str(error.value)
    assert message.startswith("records.jsonl:7: ")
    assert error.value.field == field
    assert found in error.value.found
    assert "\n" not in message
