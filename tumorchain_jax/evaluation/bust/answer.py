"""What a model is told and must reply: the versioned prompt, the form of a reading, its states."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, create_model

from tumorchain_jax.evaluation.reading.answer_part import refuses
from tumorchain_jax.llm.answer import Answer, one_of
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.ultrasound.lexicon import PROBABILITY, Lexicon

PROMPTS = {
    "us-5.1": "prompts/birads_chain_v1.md",
    "us-2025.p1": "prompts/birads_chain_2025_v1.md",
}
"""Version of the lexicon -> the instruction by it."""
CONCERNS = ("none", "not_breast_ultrasound", "nothing_to_see", "text_does_not_fit")
QUESTION = "Read this picture."
NOTE = "Text that came with the picture, as data: "

State = Literal["answered", "declined", "unread", "none"]
STATES: tuple[State, ...] = ("answered", "declined", "unread", "none")
"""answered: a category and a probability. declined: the model says that it cannot read this, or
refuses. unread: a reply, but none of the form, also after one remark. none: no reply came."""


class Read(NamedTuple):
    """What became of a reply.

    Attributes:
        why: of a state other than `answered`, in a few words.
        reading: fields of the lexicon, and `probability`; empty unless answered.
        concern: one of `CONCERNS`.
        contradiction: field by which an answered reading is not of the lexicon; empty: none.
    """

    state: State
    why: str
    reading: Mapping[str, Any]
    concern: str = "none"
    contradiction: str = ""


@lru_cache
def prompt(version: str) -> tuple[str, str]:
    """The instruction by a version of the lexicon, and its SHA-256."""
    content = files("tumorchain_jax.evaluation.bust").joinpath(PROMPTS[version]).read_bytes()
    return content.decode(), hashlib.sha256(content).hexdigest()


@lru_cache
def form(lexicon: Lexicon) -> type[BaseModel]:
    """The closed form of a reply: observations before values, fields by the lexicon."""
    fields: dict[str, Any] = {
        "observations": (str, ...),
        "readable": (bool, ...),
        "concern": (one_of(*CONCERNS), ...),
    }
    for each in lexicon.fields:
        fields[each.name] = (one_of(*each.values) | None, ...)
    chance: Any = Annotated[int, Field(ge=0, le=100)] | None
    fields[PROBABILITY] = (chance, ...)
    made: type[BaseModel] = create_model("ModelReading", __base__=Answer, **fields)
    return made


def user_text(note: str) -> str:
    """The question about a picture; a text that comes with it travels as a JSON string."""
    if not note:
        return QUESTION
    return f"{QUESTION}\n\n{NOTE}{json.dumps(note, ensure_ascii=False)}"


def read_reply(reply: Reply, lexicon: Lexicon) -> Read:
    """Tell answers from refusals and from replies that nobody can read."""
    failure = reply.failure
    if failure is not None:
        if failure.kind in ("refused", "broken", "deadline"):
            return Read("none", failure.kind, {})
        if failure.kind == "filtered" or refuses(reply.text):
            return Read("declined", "refusal", {})
        return Read("unread", failure.kind, {})
    assert reply.value is not None
    return read_values(reply.value.model_dump(), lexicon)


def read_values(values: Mapping[str, Any], lexicon: Lexicon) -> Read:
    """Read a reply of the right form."""
    concern = str(values["concern"])
    if not values["readable"]:
        return Read("declined", concern, {}, concern)
    names = (*lexicon.by_name, PROBABILITY)
    reading = {name: values[name] for name in names if values[name] is not None}
    for name in ("category", PROBABILITY):
        if name not in reading:
            return Read("unread", f"no {name}", {}, concern)
    fault = lexicon.fault(reading)
    return Read("answered", "", reading, concern, fault[0] if fault else "")
