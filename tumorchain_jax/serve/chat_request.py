"""Requests of `/v1/chat/completions`, read and checked: what cannot be done is refused by name."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tumorchain_jax.serve.refusal import Refusal

ROLES = ("system", "developer", "user", "assistant")
IGNORED = {"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"}
"""Fields without a bearing on the reply."""
ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "store": (False,),
    "logit_bias": ({},),
    "tools": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
}
"""Fields of which these values alone can be served."""
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
    try:
        values = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON") from None
    if not isinstance(values, dict):
        raise Refusal(400, "the body is no JSON object")
    return _Reader(values).read()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Reader:
    def __init__(self, values: dict[str, Any]):
        self._values = {name: value for name, value in values.items() if value is not None}
        self._seen: set[str] = set()

    def read(self) -> ChatRequest:
        """Read all fields, then refuse the ones that nobody read."""
        limit = self._integer("max_tokens", 1, 1 << 20)
        limit = self._integer("max_completion_tokens", 1, 1 << 20) or limit
        stream = self._boolean("stream")
        options = self._take("stream_options", {})
        if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
            _refuse("stream_options", "only include_usage is known")
        made = ChatRequest(
            turns=self._turns(),
            model=self._text("model"),
            max_tokens=limit,
            temperature=self._number("temperature", 1.0, 0.0, 2.0),
            top_p=self._number("top_p", 1.0, 1e-6, 1.0),
            seed=self._integer("seed", 0, (1 << 63) - 1),
            stop=self._stop(),
            schema=self._schema(),
            logprobs=self._logprobs(),
            stream=stream,
            stream_usage=stream and options.get("include_usage") is True,
        )
        for name in self._values.keys() - self._seen - IGNORED:
            if name not in ONLY:
                _refuse(name, "is not served here")
            if self._values[name] not in ONLY[name]:
                _refuse(name, f"only {json.dumps(ONLY[name][0])} is served here")
        return made

    def _take(self, name: str, default: Any = None) -> Any:
        self._seen.add(name)
        return self._values.get(name, default)

    def _text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str):
            _refuse(name, "is not a text")
        return value

    def _boolean(self, name: str) -> bool:
        value = self._take(name, False)
        if not isinstance(value, bool):
            _refuse(name, "is neither true nor false")
        return value

    def _integer(self, name: str, least: int, most: int) -> int | None:
        value = self._take(name)
        if value is not None and not (type(value) is int and least <= value <= most):
            _refuse(name, f"is no whole number from {least} to {most}")
        return value

    def _number(self, name: str, default: float, least: float, most: float) -> float:
        value = self._take(name, default)
        if type(value) not in (int, float) or not (math.isfinite(value) and least <= value <= most):
            _refuse(name, f"is no number from {least:g} to {most:g}")
        return float(value)

    def _turns(self) -> tuple[dict[str, str], ...]:
        turns = self._take("messages")
        if not isinstance(turns, list) or not 1 <= len(turns) <= MOST_TURNS:
            _refuse("messages", f"is no list of 1 to {MOST_TURNS} messages")
        return tuple(_turn(number, turn) for number, turn in enumerate(turns))

    def _stop(self) -> tuple[str, ...]:
        value = self._take("stop", [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or len(texts) > MOST_STOPS:
            _refuse("stop", f"is neither a text nor a list of up to {MOST_STOPS}")
        if not all(isinstance(text, str) and text for text in texts):
            _refuse("stop", "holds something other than filled texts")
        return tuple(texts)

    def _schema(self) -> Mapping[str, Any] | None:
        wanted = self._take("response_format", {"type": "text"})
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind == "text":
            return None
        if kind == "json_object":
            schema = wanted.get("schema", ANY_OBJECT)
        elif kind == "json_schema":
            named = wanted.get("json_schema")
            schema = named.get("schema") if isinstance(named, dict) else None
        else:
            _refuse("response_format", "its type is none of text, json_object, json_schema")
        if not isinstance(schema, dict):
            _refuse("response_format", "holds no schema")
        return schema

    def _logprobs(self) -> int | None:
        wanted = self._boolean("logprobs")
        top = self._integer("top_logprobs", 0, MOST_LOGPROBS)
        if top and not wanted:
            _refuse("top_logprobs", "needs logprobs: true")
        return (top or 0) if wanted else None


def _turn(number: int, turn: Any) -> dict[str, str]:
    where = f"messages[{number}]"
    if not isinstance(turn, dict) or turn.get("role") not in ROLES:
        _refuse(where, f"has no role of {', '.join(ROLES)}")
    unknown = set(turn) - {"role", "content", "name", "refusal"}
    if any(turn[name] for name in unknown):
        _refuse(f"{where}.{min(unknown)}", "is not served here")
    content = turn.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            _refuse(f"{where}.content", "this model reads text alone")
        content = "".join(map(str, parts))
    if not isinstance(content, str):
        _refuse(f"{where}.content", "is no text")
    try:
        content.encode()
    except UnicodeEncodeError:
        _refuse(f"{where}.content", "holds half of a surrogate pair")
    role = "system" if turn["role"] == "developer" else turn["role"]
    return {"role": role, "content": content}


def _refuse(param: str, problem: str) -> NoReturn:
    raise Refusal(400, f"{param}: {problem}", param)
