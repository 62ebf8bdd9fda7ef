"""Endpoints: where a language model answers, under which name, with which key, at which price."""

import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json

FAMILIES = (
    "claude", "command", "deepseek", "falcon", "gemini", "gemma", "glm", "gpt", "grok", "kimi",
    "llama", "medgemma", "minimax", "mistral", "mixtral", "nemotron", "olmo", "phi", "qwen",
    "smollm", "yi",
)  # fmt: skip
SCHEMAS = ("auto", "enforced", "json_schema", "json_object_schema", "json_object", "prompt")
"""How an endpoint is held to a schema; see `Endpoint.schema`."""
MODES = ("on", "off")
RESERVED = {"model", "messages", "response_format", "stream", "n"}
ENDPOINT_HINT = "llm/README.md shows an endpoints file"


@dataclass(frozen=True)
class Price:
    """What a model's tokens cost.

    Attributes:
        input, output: of a million tokens.
        currency: for messages alone; nothing is converted.
    """

    input: float
    output: float
    currency: str = "USD"

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Price of a call."""
        return (self.input * prompt_tokens + self.output * completion_tokens) / 1e6


@dataclass(frozen=True)
class Endpoint:
    """A model behind an OpenAI-compatible API.

    Attributes:
        name: what the user calls it.
        url: base address, usually ending in `/v1`.
        model: as the server knows it.
        key_env: environment variable that holds the key; empty: none is sent.
        family: of models, for the check that a reviewer is of another one; empty: by `model`.
        snapshot: version of the weights behind `model`, if the user knows it; replies of one
            snapshot are not taken for another's.
        price: None where nobody counts; a budget needs one.
        concurrency: the most calls in flight.
        timeout_s: of one HTTP exchange.
        deadline_s: of one call with all its retries; waits for a free slot are not counted.
        schema: `auto`: what the probe finds, down to plain text that is validated here;
            `enforced`: what the probe finds, and a server that enforces nothing is refused; others:
            this form, without a probe.
        tokens_field: name of the limit on tokens, `max_tokens` or `max_completion_tokens`.
        omit: fields of the request that this server refuses, e.g. `seed`, `temperature`.
        thinking: the server's own switch: `on` and `off`, each the fields that a request then has.
    """

    name: str
    url: str
    model: str
    key_env: str = ""
    family: str = ""
    snapshot: str = ""
    price: Price | None = None
    concurrency: int = 32
    timeout_s: float = 120.0
    deadline_s: float = 600.0
    schema: str = "auto"
    tokens_field: str = "max_tokens"
    omit: tuple[str, ...] = ()
    thinking: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            readable = parts.hostname is not None and (parts.port or 1) > 0
        except ValueError:
            readable = False
        if not readable or parts.scheme not in ("http", "https"):
            self._refuse("url", repr(self.url), "http://HOST:PORT/v1 or https://HOST/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            # Not shown: it may be a secret.
            hint = "put the key into an environment variable and name that in key_env"
            self._refuse("url", "a user, password or query in it", "an address alone", hint)
        if not self.model.strip():
            self._refuse("model", "nothing", "the name that the server knows")
        if not 1 <= self.concurrency <= 1024:
            self._refuse("concurrency", str(self.concurrency), "1 to 1024")
        if not 0 < self.timeout_s <= self.deadline_s <= 86400:
            found = f"{self.timeout_s} and {self.deadline_s}"
            self._refuse("timeout_s, deadline_s", found, "0 < timeout_s <= deadline_s <= 86400")
        if self.schema not in SCHEMAS:
            self._refuse("schema", repr(self.schema), " or ".join(SCHEMAS))
        if any(
            mode not in MODES or not isinstance(each, dict) or RESERVED & set(each)
            for mode, each in self.thinking.items()
        ):
            found = json.dumps(self.thinking, default=str)[:80]
            expected = "on and off as tables of fields, none of them the client's own"
            self._refuse("thinking", found, expected)
        if self.price is not None and not (self.price.input >= 0 and self.price.output >= 0):
            self._refuse("price", f"{self.price.input}, {self.price.output}", "numbers from 0 on")

    def _refuse(self, field: str, found: str, expected: str, hint: str = ENDPOINT_HINT) -> None:
        raise InputError(f"endpoint {self.name}", field, found, expected, hint)

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    def check_address(self, allow_remote: bool) -> None:
        """Refuse an endpoint on another machine unless it is allowed.

        Raises:
            InputError: it is not allowed; nothing has been sent.
        """
        if not (allow_remote or self.is_loopback):
            host = str(urlsplit(self.url).hostname)
            hint = "texts would leave this machine; --allow-remote permits it"
            self._refuse("url", host, "a loopback address", hint)

    def switch(self, mode: str) -> Mapping[str, Any]:
        """Fields of a request that turn thinking `on` or `off`.

        Raises:
            InputError: the endpoint names none.
        """
        if mode not in self.thinking:
            hint = "thinking = {on = {FIELD = VALUE}, off = {FIELD = VALUE}} as the server wants it"
            self._refuse("thinking", f"no switch for {mode}", "the server's own fields", hint)
        return self.thinking[mode]

    def key(self) -> str:
        """Read the key from the environment; empty if the endpoint needs none.

        Raises:
            InputError: the variable is not set, or holds what no header can.
        """
        if not self.key_env:
            return ""
        key = os.environ.get(self.key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            found = "no printable ASCII" if key else "not set, or empty"
            hint = f"export {self.key_env}=..."
            self._refuse("key_env", f"{self.key_env} {found}", "a key in that variable", hint)
        return key

    @property
    def families(self) -> frozenset[str]:
        """Families of the model: as told, else those that its name holds, else the name itself."""
        if self.family:
            return frozenset({self.family.casefold()})
        return families_of(self.model)


def families_of(model: str) -> frozenset[str]:
    """Families that a model's name holds, else the beginning of the name."""
    name = model.casefold()
    found = frozenset(each for each in FAMILIES if each in name)
    return found or frozenset({re.split("[^a-z]", name.split("/")[-1])[0] or name})


def read_endpoints(path: Path) -> dict[str, Endpoint]:
    """Read a file of endpoints: TOML, or JSON of the same structure.

    Returns:
        the endpoints by name.

    Raises:
        InputError: the file or an endpoint of it is not as it should be.
    """
    values = read_json(path) if path.suffix == ".json" else _read_toml(path)
    tables = values.get("endpoint")
    if not isinstance(tables, dict) or not tables:
        found = "none" if tables is None else repr(tables)[:80]
        raise InputError(path, "endpoint", found, "tables [endpoint.NAME]", ENDPOINT_HINT)
    return {name: _read_endpoint(path, name, table) for name, table in tables.items()}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(path, "TOML", str(error)[:200], "a TOML file", ENDPOINT_HINT) from error


def _read_endpoint(path: Path, name: str, table: object) -> Endpoint:
    where = f"endpoint.{name}"
    if not isinstance(table, dict):
        raise InputError(path, where, repr(table)[:80], "a table", ENDPOINT_HINT)
    if looks_secret := {"key", "api_key", "apikey", "token", "password"} & set(table):
        hint = "export the key in an environment variable and name that in key_env"
        found = f"a secret in the file ({min(looks_secret)})"
        raise InputError(path, where, found, "key_env = NAME_OF_A_VARIABLE", hint)
    price = table.get("price")
    values = {**table, "name": name}
    if price is not None:
        values["price"] = Price(**_checked(path, f"{where}.price", price, Price))
    if isinstance(values.get("omit"), list):
        values["omit"] = tuple(values["omit"])
    return Endpoint(**_checked(path, where, values, Endpoint))


def _checked(path: Path, where: str, values: object, kind: type) -> Mapping[str, Any]:
    """Fields of a dataclass from a table, each of its kind; whole numbers will do for others."""
    types = {each.name: each.type for each in fields(kind)}
    needed = ["input", "output"] if kind is Price else ["url", "model"]
    if not isinstance(values, dict):
        raise InputError(path, where, repr(values)[:80], "a table", ENDPOINT_HINT)
    for name in needed:
        if name not in values:
            raise InputError(path, f"{where}.{name}", "no such field", "one", ENDPOINT_HINT)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        expected = types.get(name)
        if expected is float and type(value) is int:
            value = float(value)
        right = (
            isinstance(value, tuple) and all(isinstance(each, str) for each in value)
            if name == "omit"
            else isinstance(value, Price)
            if name == "price"
            else isinstance(value, dict)
            if name == "thinking"
            else expected is not None and type(value) is expected
        )
        if not right:
            known = f"one of {', '.join(types)}"
            wanted = known if expected is None else getattr(expected, "__name__", str(expected))
            found = "an unknown field" if expected is None else repr(value)[:80]
            raise InputError(path, f"{where}.{name}", found, wanted, ENDPOINT_HINT)
        checked[name] = value
    return checked
