"""Endpoints and their file."""

import json
from pathlib import Path

import pytest
from llm_questions import question

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.endpoint import Endpoint, Price, read_endpoints

TOML = """
[endpoint.local]
url = "http://127.0.0.1:8000/v1"
model = "smollm2"
key_env = "LOCAL_KEY"
price = {input = 1, output = 2.5}
timeout_s = 30
omit = ["seed"]
thinking = {on = {effort = "high"}, off = {effort = "none"}}

[endpoint.other]
url = "https://example.org/v1"
model = "Qwen/Qwen2.5-7B-Instruct"
"""


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.toml"
    path.write_text(TOML)
    found = read_endpoints(path)
    assert [*found] == ["local", "other"]
    assert found["local"].price == Price(1.0, 2.5)
    assert found["local"].omit == ("seed",)
    assert found["local"].timeout_s == 30.0
    assert found["other"].families == {"qwen"}
    assert found["local"].switch("off") == {"effort": "none"}
    with pytest.raises(InputError, match="no switch for on"):
        found["other"].switch("on")


def test_json_of_the_same_structure_is_read(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text(json.dumps({"endpoint": {"a": {"url": "http://localhost/v1", "model": "m"}}}))
    assert read_endpoints(path)["a"].is_loopback


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "endpoint"),
        ("[endpoint", "TOML"),
        ('[endpoint.a]\nmodel = "m"', "endpoint.a.url"),
        ('[endpoint.a]\nurl = "http://h"', "endpoint.a.model"),
        ('[endpoint.a]\nurl = "ftp://h"\nmodel = "m"', "url"),
        ('[endpoint.a]\nurl = "http://h:99999"\nmodel = "m"', "url"),
        ('[endpoint.a]\nurl = "http://u:p@h/v1"\nmodel = "m"', "url"),
        ('[endpoint.a]\nurl = "http://h/v1?key=s"\nmodel = "m"', "url"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = " "', "model"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = 3', "endpoint.a.model"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nspeed = 3', "endpoint.a.speed"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\napi_key = "s"', "key_env"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nconcurrency = 0', "concurrency"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nconcurrency = true', "concurrency"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\ntimeout_s = 0', "timeout_s"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nschema = "yes"', "schema"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nomit = [1]', "omit"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nthinking = 3', "endpoint.a.thinking"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nthinking = {maybe = {}}', "thinking"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nthinking = {on = {n = 2}}', "thinking"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nprice = 3', "price"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nprice = {input = 1}', "price.output"),
        ('[endpoint.a]\nurl = "http://h"\nmodel = "m"\nprice = {input=-1, output=1}', "price"),
    ],
)
def test_wrong_files_are_refused_by_field(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "endpoints.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=found) as error:
        read_endpoints(path)
    assert "u:p" not in str(error.value)
    assert "key=s" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True), ("http://127.9.9.9/v1", True), ("http://[::1]:1", True),
        ("http://localhost/v1", True), ("http://LOCALHOST/v1", True), ("http://0.0.0.0/v1", False),
        ("http://10.0.0.1/v1", False), ("http://localhost.example.org/v1", False),
        ("http://127.0.0.1.example.org/v1", False), ("http://2130706433/v1", False),
    ],
)  # fmt: skip
def test_loopback(url: str, local: bool) -> None:
    endpoint = Endpoint("a", url, "m")
    assert endpoint.is_loopback == local
    if not local:
        with pytest.raises(InputError, match="--allow-remote"):
            endpoint.check_address(allow_remote=False)
    endpoint.check_address(allow_remote=True)


@pytest.mark.parametrize(
    ("model", "families"),
    [
        ("gpt-4o-mini", {"gpt"}), ("chatgpt-latest", {"gpt"}), ("claude-3-5-haiku", {"claude"}),
        ("Qwen/Qwen3-235B-A22B", {"qwen"}), ("SmolLM2-135M-Instruct", {"smollm"}),
        ("DeepSeek-R1-Distill-Qwen-7B", {"deepseek", "qwen"}), ("house/own-7b", {"own"}),
    ],
)  # fmt: skip
def test_families(model: str, families: set[str]) -> None:
    assert Endpoint("a", "http://localhost", model).families == families


def test_family_can_be_told() -> None:
    assert Endpoint("a", "http://localhost", "x", family="Own").families == {"own"}


def test_key_of_a_reply_is_of_these_fields() -> None:
    fields = question(1).key_fields("m")
    assert fields.keys() == {
        "model", "snapshot", "messages", "schema", "temperature", "top_p", "max_tokens", "seed",
        "logprobs", "prompt", "attempt", "redraw",
    }  # fmt: skip
    keys = {question(1).key("m")}
    for changed in (
        question(2), question(1, answer=None), question(1, prompt="v2"), question(1, attempt=1),
        question(1, redraw=1), question(1).repaired("x"),
    ):  # fmt: skip
        keys.add(changed.key("m"))
    keys |= {question(1).key("n"), question(1).key("m", "2026-01")}
    assert len(keys) == 9
    assert question(1).key("m") == question(1).key("m")
