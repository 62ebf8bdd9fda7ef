"""A closed answer and requests for it, for tests of the client."""

from typing import Any, Literal

from tumorchain_jax.llm.answer import Answer
from tumorchain_jax.llm.endpoint import Endpoint, Price
from tumorchain_jax.llm.request import Message, Request


class Size(Answer):
    quote: str
    organ: Literal["liver", "colon"]
    mm: int | None


def question(number: int, **fields: Any) -> Request:
    """One of many different requests."""
    messages = (Message("system", "Extract the size."), Message("user", f"report {number}"))
    return Request(messages, **{"answer": Size, **fields})


def questions(count: int) -> list[Request]:
    return [question(number) for number in range(count)]


def endpoint(url: str, **fields: Any) -> Endpoint:
    """An endpoint of a stub that gives up soon."""
    defaults = {"concurrency": 16, "timeout_s": 0.4, "deadline_s": 30.0, "price": Price(1.0, 2.0)}
    return Endpoint("stub", url, "stub-1", **{**defaults, **fields})
