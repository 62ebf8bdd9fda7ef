"""Servers that enforce schemas, ignore them, refuse them, and how the run goes on."""

from pathlib import Path

import pytest
from llm_questions import endpoint, questions

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.client import ask_all

SERVERS = [
    ("json_schema", "json_schema: enforced", "json_schema"),
    ("json_object_schema", "json_schema: refused, json_object_schema: enforced", "json_object"),
    ("refuses", "json_schema: refused, json_object_schema: refused, json_object: no JSON", None),
    ("text", "json_schema: no JSON, json_object_schema: no JSON, json_object: no JSON", None),
    (
        "ignores",
        "json_schema: JSON of another form, json_object_schema: JSON of another form, "
        "json_object: no JSON",
        None,
    ),
]


@pytest.mark.parametrize(("kind", "found", "format_type"), SERVERS)
def test_servers_are_told_apart_and_answers_come(
    tmp_path: Path, kind: str, found: str, format_type: str | None
) -> None:
    told: list[str] = []
    with StubServer(Behaviour(schemas=kind)) as server:
        target = endpoint(server.url)
        replies = ask_all(target, tmp_path / "j", questions(4), tell=told.append)
        assert all(reply.ok for reply in replies)
        asked = [body for body in server.bodies.values() if "temperature" in body]
        assert len(asked) == 4
        assert {body.get("response_format", {}).get("type") for body in asked} == {format_type}
        in_prompt = ["of this schema" in str(body["messages"]) for body in asked]
        assert in_prompt == [format_type is None] * 4
        sent = server.sent
        told_again: list[str] = []
        more = ask_all(target, tmp_path / "j", questions(5), tell=told_again.append)
        kept = {"json_schema": 1, "json_object_schema": 1, "refuses": 1}.get(kind, 3)
        assert all(reply.ok for reply in more)
        assert server.sent - sent <= 1 + 2 * (3 - kept)  # the probe's replies are kept as well
    assert told == told_again
    assert found in told[0]


@pytest.mark.parametrize("kind", ["refuses", "text", "ignores"])
def test_server_that_enforces_nothing_is_refused_if_it_must(tmp_path: Path, kind: str) -> None:
    with StubServer(Behaviour(schemas=kind)) as server:
        target = endpoint(server.url, schema="enforced")
        with pytest.raises(InputError, match="not enforced"):
            ask_all(target, tmp_path / "j", questions(9))
        assert server.sent <= 6  # the probe alone
