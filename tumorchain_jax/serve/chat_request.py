"""Requests of `/v1/chat/completions`, read and checked: what cannot be done is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tumorchain_jax.serve.fields import Fields, refuse

ROLES = ("system", "developer", "user", "assistant")
MOST_TURNS, MOST_STOPS, MOST_LOGPROBS = 256, 4, 20
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to go on with.

    Attributes:
        turns: {"role", "content"} each.
        max_tokens: of the reply; None: as many as there is room for, up to the server's own limit.
        seed: None: another one each time.
        stop: texts that end the reply; they are not part of it.
        schema: that the reply is JSON of; None: any text.
        logprobs: likeliest tokens to name at each place; None: no probabilities at all.
        stream: whether the reply comes piece by piece; `stream_usage`: with its usage at the end.
    """

    turns: tuple[dict[str, str], ...]
    model: str
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    schema: Mapping[str, Any] | None
    logprobs: int | None
    stream: bool
    stream_usage: bool


def read_request(body: bytes) -> ChatRequest:
    """Read a request.

    Raises:
        Refusal: (400) it is not as it should be, or asks for what is not served.
    """
    return _Reader(body).read()


class _Reader(Fields):
    def read(self) -> ChatRequest:
        """Read all fields, then refuse the ones that nobody read."""
        limit = self.integer("max_tokens", 1, 1 << 20)
        limit = self.integer("max_completion_tokens", 1, 1 << 20) or limit
        stream, stream_usage = self.stream()
        made = ChatRequest(
            turns=self._turns(),
            model=self.text("model"),
            max_tokens=limit,
            temperature=self.number("temperature", 1.0, 0.0, 2.0),
            top_p=self.number("top_p", 1.0, 1e-6, 1.0),
            seed=self.integer("seed", 0, (1 << 63) - 1),
            stop=self._stop(),
            schema=self._schema(),
            logprobs=self._logprobs(),
            stream=stream,
            stream_usage=stream_usage,
        )
        self.refuse_others()
        return made

    def _turns(self) -> tuple[dict[str, str], ...]:
        turns = self.take("messages")
        if not isinstance(turns, list) or not 1 <= len(turns) <= MOST_TURNS:
            refuse("messages", f"is no list of 1 to {MOST_TURNS} messages")
        return tuple(_turn(number, turn) for number, turn in enumerate(turns))

    def _stop(self) -> tuple[str, ...]:
        value = self.take("stop", [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or len(texts) > MOST_STOPS:
            refuse("stop", f"is neither a text nor a list of up to {MOST_STOPS}")
        if not all(isinstance(text, str) and text for text in texts):
            refuse("stop", "holds something other than filled texts")
        return tuple(texts)

    def _schema(self) -> Mapping[str, Any] | None:
        wanted = self.take("response_format", {"type": "text"})
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind == "text":
            return None
        if kind == "json_object":
            schema = wanted.get("schema", ANY_OBJECT)
        elif kind == "json_schema":
            named = wanted.get("json_schema")
            schema = named.get("schema") if isinstance(named, dict) else None
        else:
            refuse("response_format", "its type is none of text, json_object, json_schema")
        if not isinstance(schema, dict):
            refuse("response_format", "holds no schema")
        return schema

    def _logprobs(self) -> int | None:
        wanted = self.boolean("logprobs")
        top = self.integer("top_logprobs", 0, MOST_LOGPROBS)
        if top and not wanted:
            refuse("top_logprobs", "needs logprobs: true")
        return (top or 0) if wanted else None


def _turn(number: int, turn: Any) -> dict[str, str]:
    where = f"messages[{number}]"
    if not isinstance(turn, dict) or turn.get("role") not in ROLES:
        refuse(where, f"has no role of {', '.join(ROLES)}")
    unknown = set(turn) - {"role", "content", "name", "refusal"}
    if any(turn[name] for name in unknown):
        refuse(f"{where}.{min(unknown)}", "is not served here")
    content = turn.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            refuse(f"{where}.content", "this model reads text alone")
        content = "".join(map(str, parts))
    if not isinstance(content, str):
        refuse(f"{where}.content", "is no text")
    try:
        content.encode()
    except UnicodeEncodeError:
        refuse(f"{where}.content", "holds half of a surrogate pair")
    role = "system" if turn["role"] == "developer" else turn["role"]
    return {"role": role, "content": content}
