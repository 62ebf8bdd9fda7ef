"""Fields of a request, read by name; what nobody read is refused."""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from tumorchain_jax.serve.refusal import Refusal

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


def refuse(param: str, problem: str) -> NoReturn:
    """Raise the refusal (400) of a field."""
    raise Refusal(400, f"{param}: {problem}", param)


class Fields:
    """The fields of a JSON body.

    Raises:
        Refusal: (400) the body is no JSON object, or a field is not as it should be.
    """

    def __init__(self, body: bytes):
        try:
            values = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None
        if not isinstance(values, dict):
            raise Refusal(400, "the body is no JSON object")
        self._values = {name: value for name, value in values.items() if value is not None}
        self._seen: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a field, whatever it is."""
        self._seen.add(name)
        return self._values.get(name, default)

    def text(self, name: str) -> str:
        """A field that must be there."""
        value = self.take(name)
        if not isinstance(value, str):
            refuse(name, "is not a text")
        return value

    def boolean(self, name: str) -> bool:
        """False where it is missing."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            refuse(name, "is neither true nor false")
        return value

    def integer(self, name: str, least: int, most: int) -> int | None:
        """None where it is missing."""
        value = self.take(name)
        if value is not None and not (type(value) is int and least <= value <= most):
            refuse(name, f"is no whole number from {least} to {most}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A finite number."""
        value = self.take(name, default)
        if type(value) not in (int, float) or not (math.isfinite(value) and least <= value <= most):
            refuse(name, f"is no number from {least:g} to {most:g}")
        return float(value)

    def stream(self) -> tuple[bool, bool]:
        """Whether the reply comes piece by piece, and with its usage at the end."""
        stream = self.boolean("stream")
        options = self.take("stream_options", {})
        if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
            refuse("stream_options", "only include_usage is known")
        return stream, stream and options.get("include_usage") is True

    def refuse_others(self, ignored: Collection[str] = ()) -> None:
        """Refuse the fields that nobody read, save those without a bearing on the reply."""
        for name in self._values.keys() - self._seen - IGNORED - {*ignored}:
            if name not in ONLY:
                refuse(name, "is not served here")
            if self._values[name] not in ONLY[name]:
                refuse(name, f"only {json.dumps(ONLY[name][0])} is served here")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
