"""Replies of a closed form: the schema that a server is given, and the check that is done here.

    class Size(Answer):
        quote: str                      # before the value: models reason in the order of fields
        organ: Literal["liver", "colon"]
        mm: int | None                  # nullable instead of optional

A server that claims to enforce a schema is not believed: every reply is checked again.
"""

import json
import math
from functools import lru_cache
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

LARGEST = 1 << 20
"""Characters of a reply."""
DEEPEST = 32
SHOWN_ERRORS = 3
PLAIN = {
    "type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
    "maxLength", "minItems", "maxItems", "pattern",
}  # fmt: skip
IGNORED = {"title", "description", "$defs"}


class Answer(BaseModel):
    """Base of what replies are read into: no other fields, no conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def one_of(*values: str | int) -> Any:
    """Make the type of a field that is one of a few values, known only while running."""
    literal: Any = Literal
    return literal[values]


class AnswerError(Exception):
    """A reply that is not of the form that was asked for; says what is wrong, in one line.

    Nothing of the reply stands in the message, so that it can be sent back to the model.
    """


@lru_cache(maxsize=256)
def closed_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Make the JSON schema of an answer: every object closed, all its fields required.

    Raises:
        TypeError: the model is open, has fields that may be left out, refers to itself, or uses
            what servers do not agree on.
    """
    schema = answer.model_json_schema()
    return _closed(schema, schema.get("$defs", {}), answer.__name__, ())


def _closed(
    node: dict[str, Any], definitions: dict[str, Any], where: str, inside: tuple[str, ...]
) -> dict[str, Any]:
    def refuse(problem: str) -> NoReturn:
        raise TypeError(f"{where}: {problem}")

    def inner(child: dict[str, Any], name: str) -> dict[str, Any]:
        return _closed(child, definitions, f"{where}.{name}", inside)

    if "$ref" in node:
        name = node["$ref"].split("/")[-1]
        if name in inside:
            refuse(f"{name} refers to itself")
        return _closed(definitions[name], definitions, where, (*inside, name))
    closed: dict[str, Any] = {}
    for key, value in node.items():
        if key in PLAIN:
            closed[key] = value
        elif key == "const":
            closed["enum"] = [value]
        elif key == "anyOf":
            closed[key] = [inner(each, str(number)) for number, each in enumerate(value)]
        elif key == "items":
            closed[key] = inner(value, "items")
        elif key == "properties":
            closed[key] = {name: inner(each, name) for name, each in value.items()}
        elif key == "default":
            refuse("a default; make it nullable, and required")
        elif key not in IGNORED | {"required", "additionalProperties"}:
            refuse(f"{key!r} in its schema")
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False or "properties" not in node:
            refuse("an open object; derive it from llm.answer.Answer")
        if set(node.get("required", ())) != set(node["properties"]):
            refuse("a field that may be left out; make it nullable, and required")
        closed |= {"required": [*node["properties"]], "additionalProperties": False}
    return closed


def read_answer(answer: type[BaseModel], text: str) -> BaseModel:
    """Read a reply, which must be the JSON of an answer and nothing else.

    A single code fence around the whole is taken off.

    Raises:
        AnswerError: it is something else.
    """
    text = _without_fence(text)
    parse_strictly(text)
    try:
        return answer.model_validate_json(text)
    except ValidationError as error:
        raise AnswerError(_described(error)) from None


def parse_strictly(text: str) -> Any:
    """Parse JSON without NaN, infinities, duplicate keys, lone surrogates, or great depth.

    Raises:
        AnswerError: it has one of them, is too long, or is no JSON.
    """
    if len(text) > LARGEST:
        raise AnswerError(f"the reply has more than {LARGEST} characters")
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_without_duplicates,
        )
        _check_depth(value)
        json.dumps(value, ensure_ascii=False).encode()
    except AnswerError:
        raise
    except UnicodeEncodeError:
        raise AnswerError("the JSON holds half of a surrogate pair") from None
    except RecursionError:
        raise AnswerError("the JSON has too many nested brackets") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise AnswerError(f"the reply is not one JSON value: {error.msg} at {where}") from None
    except ValueError:  # an integer of thousands of digits
        raise AnswerError("the JSON holds a number that is too long") from None
    return value


def _without_fence(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) > 2 and lines[0] in ("```", "```json") and lines[-1] == "```":
        return "\n".join(lines[1:-1])
    return text


def _refuse_constant(name: str) -> NoReturn:
    raise AnswerError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise AnswerError("the JSON holds a number that is too large")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise AnswerError("a key stands twice in one object")
    return values


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise AnswerError("the JSON has too many nested brackets")


def _described(error: ValidationError) -> str:
    """What is wrong, without anything that the model wrote."""
    found = error.errors(include_url=False, include_input=False, include_context=True)
    lines = []
    for each in found[:SHOWN_ERRORS]:
        extra = each["type"] == "extra_forbidden"
        names = each["loc"][:-1] if extra else each["loc"]
        where = ".".join(str(name) for name in names) or "the object"
        lines.append(f"{where}: {'an unknown field' if extra else each['msg']}")
    more = len(found) - SHOWN_ERRORS
    return "; ".join([*lines, f"and {more} more faults"] if more > 0 else lines)
