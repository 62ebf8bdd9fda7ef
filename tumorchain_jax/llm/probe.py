"""Does a server enforce a schema? Asked in a way that only one that does can pass.

The schema allows a single word that stands nowhere in the question, and the question asks for
something else: a server that leaves the schema out of account cannot hit on it.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tumorchain_jax.llm.answer import AnswerError, parse_strictly
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.journal import Kept
from tumorchain_jax.llm.transport import Refused

Form: TypeAlias = Literal["json_schema", "json_object_schema", "json_object", "prompt"]
Finding: TypeAlias = Literal["enforced", "JSON of another form", "no JSON", "refused"]

VERSION = 1
QUESTION = "Name a colour that you like, in one short sentence of plain English."
TOKENS = 64
ENFORCING: tuple[Form, ...] = ("json_schema", "json_object_schema")


@dataclass(frozen=True)
class Probed:
    """What a server does with a schema.

    Attributes:
        form: in which it is sent from now on.
        enforced: whether the server keeps to it.
        findings: of the forms that were tried, in their order.
    """

    form: Form
    enforced: bool
    findings: tuple[tuple[Form, Finding], ...]

    def line(self) -> str:
        """What was found, in one line."""
        found = ", ".join(f"{form}: {finding}" for form, finding in self.findings)
        return f"schemas are {'enforced' if self.enforced else 'not enforced'} ({found})"


def response_format(form: Form, schema: dict[str, Any]) -> dict[str, Any] | None:
    """The field of a request; None where there is none to send."""
    if form == "json_schema":
        named = {"name": "answer", "strict": True, "schema": schema}
        return {"type": "json_schema", "json_schema": named}
    if form == "json_object_schema":
        return {"type": "json_object", "schema": schema}
    return {"type": "json_object"} if form == "json_object" else None


def probe_key(endpoint: Endpoint, form: Form) -> str:
    """Under which a probe's reply is kept: of a server, not only of a model."""
    text = "\0".join(("probe", str(VERSION), endpoint.url, endpoint.model, endpoint.snapshot, form))
    return hashlib.sha256(text.encode()).hexdigest()


def probe_body(endpoint: Endpoint, form: Form) -> dict[str, Any]:
    """The request of a probe."""
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": QUESTION}],
        endpoint.tokens_field: TOKENS,
    }
    return body | {"response_format": response_format(form, _schema(endpoint))}


def _word(endpoint: Endpoint) -> str:
    return "w" + hashlib.sha256(endpoint.model.encode()).hexdigest()[:8]


def _schema(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [_word(endpoint)]}},
        "required": ["word"],
        "additionalProperties": False,
    }


Try: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Kept | Refused]]
"""(key, body) -> the reply, or how it was refused."""


async def probe(endpoint: Endpoint, attempt: Try) -> Probed:
    """Find out what a server does with a schema, in at most three short calls."""
    findings: list[tuple[Form, Finding]] = []
    for form in ENFORCING:
        finding = await _find(endpoint, form, attempt)
        findings.append((form, finding))
        if finding == "enforced":
            return Probed(form, True, tuple(findings))
    finding = await _find(endpoint, "json_object", attempt)
    findings.append(("json_object", finding))
    plain = finding in ("refused", "no JSON")
    return Probed("prompt" if plain else "json_object", False, tuple(findings))


async def _find(endpoint: Endpoint, form: Form, attempt: Try) -> Finding:
    found = await attempt(probe_key(endpoint, form), probe_body(endpoint, form))
    if isinstance(found, Refused):
        return "refused"
    try:
        value = parse_strictly(found.text)
    except AnswerError:
        return "no JSON"
    return "enforced" if value == {"word": _word(endpoint)} else "JSON of another form"
