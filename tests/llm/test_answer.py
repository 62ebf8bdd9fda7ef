"""Replies of a closed form: schemas, strict JSON, errors that can be sent back."""

import json
from typing import Any, Literal

import jsonschema
import pytest
from llm_questions import Size
from pydantic import BaseModel

from tumorchain_jax.bench.llm_stub import instance
from tumorchain_jax.llm.answer import (
    Answer,
    AnswerError,
    closed_schema,
    parse_strictly,
    read_answer,
)


class Lesion(Answer):
    quote: str
    sizes: list[Size]
    stage: Literal["T1"] | None


def objects(schema: Any) -> list[dict]:
    if isinstance(schema, list):
        return [each for item in schema for each in objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [each for value in schema.values() for each in objects(value)]


def test_every_object_is_closed_and_all_fields_are_required() -> None:
    schema = closed_schema(Lesion)
    found = objects(schema)
    assert len(found) == 2
    for each in found:
        assert each["additionalProperties"] is False
        assert each["required"] == [*each["properties"]]
    assert [*schema["properties"]] == ["quote", "sizes", "stage"]  # the order of reasoning
    assert "$ref" not in json.dumps(schema)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_schema_and_reader_agree() -> None:
    made = instance(closed_schema(Lesion))
    jsonschema.validate(made, closed_schema(Lesion))
    assert read_answer(Lesion, json.dumps(made)).model_dump() == made


class Open(BaseModel):
    name: str


class Default(Answer):
    name: str = "a"


class Free(Answer):
    values: dict[str, int]


class Self(Answer):
    child: "Self | None"


class Pair(Answer):
    pair: tuple[int, str]


@pytest.mark.parametrize("model", [Open, Default, Free, Self, Pair])
def test_open_models_are_refused(model: type[BaseModel]) -> None:
    with pytest.raises(TypeError, match=model.__name__):
        closed_schema(model)


GOOD = '{"quote": "a", "organ": "liver", "mm": null}'


@pytest.mark.parametrize(
    "text", [GOOD, f"\n {GOOD} \n", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```"]
)
def test_good_replies_are_read(text: str) -> None:
    assert read_answer(Size, text) == Size(quote="a", organ="liver", mm=None)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "Sure!", f"Sure! {GOOD}", f"{GOOD}{GOOD}", GOOD[:-1], f"{GOOD} Bye.",
        '{"quote": "a", "organ": "liver", "mm": NaN}',
        '{"quote": "a", "organ": "liver", "mm": Infinity}',
        '{"quote": "a", "organ": "liver", "mm": 1e999}',
        '{"quote": "a", "organ": "liver", "mm": 1.5}',
        '{"quote": "a", "organ": "liver", "mm": "52"}',
        '{"quote": "a", "organ": "liver", "mm": true}',
        '{"quote": "a", "quote": "b", "organ": "liver", "mm": 1}',
        '{"quote": "\\ud800", "organ": "liver", "mm": 1}',
        '{"quote": "a", "organ": "spleen", "mm": 1}',
        '{"quote": "a", "organ": "liver"}',
        '{"quote": "a", "organ": "liver", "mm": 1, "more": 2}',
        '{"quote": "a", "organ": "liver", "mm": ' + "9" * 5000 + "}",
        '{"quote": ' + "[" * 40 + "]" * 40 + ', "organ": "liver", "mm": 1}',
        '{"quote": ' + "[" * 100_000 + "}",
        '{"quote": "' + "a" * (1 << 20) + '", "organ": "liver", "mm": 1}',
    ],
)  # fmt: skip
def test_other_replies_are_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(AnswerError) as error:
        read_answer(Size, text)
    assert 0 < len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def test_errors_hold_nothing_that_the_model_wrote() -> None:
    text = '{"quote": 7, "organ": "EVIL1", "mm": 1, "EVIL2": [{"EVIL3": "EVIL4"}]}'
    with pytest.raises(AnswerError) as error:
        read_answer(Size, text)
    assert "EVIL" not in str(error.value)
    assert "organ" in str(error.value)


def test_depth_is_counted_exactly() -> None:
    assert parse_strictly("[" * 31 + "]" * 31) is not None
    with pytest.raises(AnswerError, match="nested"):
        parse_strictly("[" * 32 + "1" + "]" * 32)
