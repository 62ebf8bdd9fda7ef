"""What a model is asked, and the key under which its reply is kept."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from tumorchain_jax.llm.answer import closed_schema

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Image:
    """A picture in a message.

    Attributes:
        data: the file's bytes.
        kind: `image/png` or `image/jpeg`.
    """

    data: bytes = field(repr=False)
    kind: str = "image/png"


Content: TypeAlias = str | tuple[str | Image, ...]
"""Text, or texts and pictures in their order."""


@dataclass(frozen=True)
class Message:
    """A turn of a conversation."""

    role: Role
    content: Content

    def to_json(self) -> dict[str, Any]:
        """As the API takes it."""
        if isinstance(self.content, str):
            return {"role": self.role, "content": self.content}
        parts = [_part(each) for each in self.content]
        return {"role": self.role, "content": parts}


def _part(content: str | Image) -> dict[str, Any]:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    encoded = base64.b64encode(content.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{content.kind};base64,{encoded}"}}


@dataclass(frozen=True)
class Sampling:
    """How a reply is drawn.

    Attributes:
        temperature: 0: the likeliest token each time.
        top_p: nucleus.
        max_tokens: of the reply; one that reaches it has failed.
        seed: for servers that take one.
        logprobs: number of likeliest tokens whose log probabilities are wanted; 0: none.
        thinking: `on` or `off`, by the endpoint's own switch; empty: as the server has it.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024
    seed: int = 0
    logprobs: int = 0
    thinking: str = ""


@dataclass(frozen=True)
class Request:
    """A question to a model.

    Attributes:
        messages: the conversation so far.
        answer: closed pydantic model that the reply must be of, see `llm/answer.py`; None: text.
        sampling: how the reply is drawn.
        prompt: version (or hash) of the prompt that the messages were made from.
        attempt: of the caller, from 0: a further attempt is a call of its own.
        redraw: of the client, from 0: a reply that failed is drawn again.
    """

    messages: tuple[Message, ...]
    answer: type[BaseModel] | None = None
    sampling: Sampling = Sampling()
    prompt: str = ""
    attempt: int = 0
    redraw: int = 0

    def key_fields(self, model: str, snapshot: str = "") -> dict[str, Any]:
        """Everything that decides the reply, and nothing else."""
        # Without a switch keys are what they were before there was one.
        switch = {"thinking": self.sampling.thinking} if self.sampling.thinking else {}
        return switch | {
            "model": model,
            "snapshot": snapshot,
            "messages": [message.to_json() for message in self.messages],
            "schema": closed_schema(self.answer) if self.answer else None,
            "temperature": float(self.sampling.temperature),
            "top_p": float(self.sampling.top_p),
            "max_tokens": self.sampling.max_tokens,
            "seed": self.sampling.seed,
            "logprobs": self.sampling.logprobs,
            "prompt": self.prompt,
            "attempt": self.attempt,
            "redraw": self.redraw,
        }

    def key(self, model: str, snapshot: str = "") -> str:
        """SHA-256 of `key_fields` as canonical JSON, in hexadecimal digits."""
        text = json.dumps(
            self.key_fields(model, snapshot),
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def repaired(self, error: str) -> "Request":
        """The same question with a remark on what was wrong with a reply to it.

        The remark carries the error alone: neither the reply, which may hold instructions, nor
        the turns between. It is part of the last turn, as templates refuse two in a row.
        """
        last = self.messages[-1]
        remark = f"A reply to this was refused: {error}. Reply again, without that fault."
        content: Content
        if isinstance(last.content, str):
            content = f"{last.content}\n\n{remark}"
        else:
            content = (*last.content, remark)
        return replace(self, messages=(*self.messages[:-1], replace(last, content=content)))


def ask_text(system: str, text: str, **fields: Any) -> Request:
    """A request of an instruction and a text that is data.

    The text travels as a JSON string, so that it cannot pass for a turn or an instruction.
    """
    data = json.dumps({"text": text}, ensure_ascii=False)
    return Request((Message("system", system), Message("user", data)), **fields)


def conversation(turns: Sequence[tuple[Role, str]]) -> tuple[Message, ...]:
    """Messages of (role, text) pairs."""
    return tuple(Message(role, text) for role, text in turns)
