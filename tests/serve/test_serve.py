"""A served model: replies, schemas, refusals, the queue, keys."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import numpy as np
import pytest
from ct_clients import client_of

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.llm.client import ask_all
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.request import Message, Request, Sampling
from tumorchain_jax.serve.chat_request import read_request
from tumorchain_jax.serve.decoding import Choice, TokenDecoder
from tumorchain_jax.serve.refusal import Refusal
from tumorchain_jax.serve.server import read_key
from tumorchain_jax.serve.worker import Worker

pytestmark = pytest.mark.program
TURNS = [{"role": "user", "content": "Where is the tumour?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "quote": {"type": "string", "maxLength": 8},
        "organ": {"type": "string", "enum": ["liver", "colon"]},
        "sizes": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 2},
        "stage": {"anyOf": [{"type": "null"}, {"type": "string", "enum": ["T1"]}]},
    },
    "required": ["quote", "organ", "sizes", "stage"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def post(url: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx2.Response:
    body = {"model": "tiny", "messages": TURNS, "max_tokens": 12, "temperature": 0, **fields}
    address = f"{url}/v1/chat/completions"
    return httpx2.post(address, json=body, headers=headers, timeout=60, trust_env=False)


def stream(url: str, **fields: Any) -> list[dict[str, Any]]:
    lines = post(url, stream=True, **fields).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_reply_is_what_the_model_writes(url: str, language_model: LanguageModel) -> None:
    reply = post(url).json()
    prompt = language_model.prompt(TURNS)
    [ids] = language_model.generate([prompt], 12)
    [choice] = reply["choices"]
    assert choice["message"]["content"] == language_model.tokenizer.decode(ids)
    ended = len(ids) < 12
    assert choice["finish_reason"] == ("stop" if ended else "length")
    assert reply["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids) + ended,
        "total_tokens": len(prompt) + len(ids) + ended,
    }


def test_stream_says_the_same_and_its_usage(url: str) -> None:
    whole = post(url, max_tokens=30, temperature=1.3, seed=5, logprobs=True, top_logprobs=3).json()
    chunks = stream(
        url, max_tokens=30, temperature=1.3, seed=5, logprobs=True, top_logprobs=3,
        stream_options={"include_usage": True},
    )  # fmt: skip
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    told = [c["choices"][0]["logprobs"] for c in chunks if c["choices"]]
    flat = [each for found in told if found for each in found["content"]]
    assert flat == whole["choices"][0]["logprobs"]["content"]


def test_openai_client_works_unchanged(url: str) -> None:
    options = {"model": "tiny", "messages": TURNS, "max_tokens": 12, "temperature": 0}
    options |= {"logprobs": True, "top_logprobs": 2}
    with client_of(url) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        whole = client.chat.completions.create(**options).choices[0]
        chunks = [*client.chat.completions.create(**options, stream=True)]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.message.content
    assert len(whole.logprobs.content[0].top_logprobs) == 2


def test_logprobs_are_the_models(url: str, language_model: LanguageModel) -> None:
    reply = post(url, max_tokens=4, logprobs=True, top_logprobs=5).json()
    content = reply["choices"][0]["logprobs"]["content"]
    for each in content:
        likeliest = [other["logprob"] for other in each["top_logprobs"]]
        assert likeliest == sorted(likeliest, reverse=True)
        assert each["logprob"] == likeliest[0]  # greedy
        assert np.exp(likeliest).sum() <= 1 + 1e-5
    assert "".join(each["token"] for each in content) == reply["choices"][0]["message"]["content"]


@pytest.mark.parametrize("temperature", [0, 0.5, 1, 2])
def test_random_weights_write_json_of_the_schema(url: str, temperature: float) -> None:
    for seed in range(2):
        reply = post(
            url, response_format=FORMAT, max_tokens=250, temperature=temperature, seed=seed
        ).json()
        choice = reply["choices"][0]
        assert choice["finish_reason"] == "stop"
        value = json.loads(choice["message"]["content"])
        jsonschema.validate(value, SCHEMA)
        assert [*value] == [*SCHEMA["properties"]]


def test_json_object_with_and_without_schema(url: str) -> None:
    form = {"type": "json_object", "schema": SCHEMA}
    reply = post(url, response_format=form, max_tokens=250, temperature=1, seed=1).json()
    jsonschema.validate(json.loads(reply["choices"][0]["message"]["content"]), SCHEMA)
    text = post(url, response_format={"type": "json_object"}).json()["choices"][0]
    assert text["message"]["content"].startswith("{")


def test_seed_decides(url: str) -> None:
    texts = [
        post(url, seed=seed, temperature=1).json()["choices"][0]["message"]["content"]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_stop_ends_the_reply_before_it(url: str) -> None:
    whole = post(url, max_tokens=30).json()["choices"][0]["message"]["content"]
    mark = whole[8:11]
    cut = post(url, max_tokens=30, stop=[mark]).json()["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["message"]["content"] == whole[: whole.index(mark)]
    chunks = stream(url, max_tokens=30, stop=mark)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert text == whole[: whole.index(mark)]


@pytest.mark.parametrize(
    ("fields", "status", "found"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, r"messages\[0\]"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text alone"),
        ({"messages": [{"role": "user", "content": "tumour " * 500}]}, 400, "context"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 399}, 400, "context"),
        ({"temperature": -1}, 400, "temperature"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"seed": 1.5}, 400, "seed"),
        ({"n": 2}, 400, "n: only 1"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"presence_penalty": 1}, 400, "presence_penalty"),
        ({"speed": 1}, 400, "speed"),
        ({"top_logprobs": 2}, 400, "top_logprobs"),
        ({"stream": "yes"}, 400, "stream"),
        ({"stop": [""]}, 400, "stop"),
        ({"response_format": {"type": "xml"}}, 400, "response_format"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format"),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "nonsense"}}},
            400,
            "schema",
        ),
        ({"model": "gpt-5"}, 404, "only tiny"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    url: str, fields: dict[str, Any], status: int, found: str
) -> None:
    reply = post(url, **fields)
    error = reply.json()["error"]
    assert reply.status_code == status, error

    assert re.search(found, error["message"])
    assert "\n" not in error["message"]
    assert post(url, max_tokens=1).status_code == 200


def test_half_a_character_is_refused() -> None:
    body = rb'{"model": "tiny", "messages": [{"role": "user", "content": "\ud800"}]}'
    with pytest.raises(Refusal, match="surrogate"):
        read_request(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_bodies_that_are_no_request_are_refused(url: str, body: bytes) -> None:
    reply = httpx2.post(f"{url}/v1/chat/completions", content=body, trust_env=False)
    assert reply.status_code == 400
    with pytest.raises(Refusal):
        read_request(body)


def test_body_that_is_too_long_is_refused(url: str) -> None:
    body = b'{"model": "' + b"a" * (5 << 20) + b'"}'
    reply = httpx2.post(f"{url}/v1/chat/completions", content=body, trust_env=False)
    assert reply.status_code == 413


def test_other_paths_and_hosts_are_refused(url: str) -> None:
    assert httpx2.get(f"{url}/v1/nothing", trust_env=False).status_code == 404
    assert httpx2.get(f"{url}/v1/chat/completions", trust_env=False).status_code == 405
    foreign = httpx2.get(f"{url}/v1/models", headers={"Host": "evil.org"}, trust_env=False)
    assert foreign.status_code == 400


def test_models_and_health(url: str) -> None:
    models = httpx2.get(f"{url}/v1/models", trust_env=False).json()
    assert [model["id"] for model in models["data"]] == ["tiny"]
    health = httpx2.get(f"{url}/health", trust_env=False).json()
    assert (health["status"], health["most_waiting"], health["context"]) == ("ok", 2, 400)
    assert 512 in health["compiled"]


def test_full_queue_says_when_to_come_back_and_our_client_does(url: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(12) as threads:
        replies = [*threads.map(lambda _: post(url, max_tokens=100), range(12))]
    statuses = {reply.status_code for reply in replies}
    assert statuses == {200, 429}
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    endpoint = Endpoint("own", f"{url}/v1", "tiny", concurrency=8)
    messages = [(Message("user", f"question {number}"),) for number in range(8)]
    requests = [Request(each, None, Sampling(max_tokens=30)) for each in messages]
    answers = ask_all(endpoint, tmp_path / "j", requests)
    assert {a.failure.kind if a.failure else "" for a in answers} <= {"", "length"}
    assert all(a.usage.completion_tokens > 0 for a in answers)


def test_client_that_goes_away_frees_the_model(url: str, worker: Worker) -> None:
    body = {"model": "tiny", "messages": TURNS, "max_tokens": 300, "stream": True}
    body |= {"temperature": 1, "seed": 1}
    with httpx2.stream(
        "POST", f"{url}/v1/chat/completions", json=body, trust_env=False
    ) as response:
        next(response.iter_raw())
    assert post(url, max_tokens=1).status_code == 200  # it does not wait for 300 tokens


def test_key_is_asked_for(locked_url: str, key: str) -> None:
    assert post(locked_url).status_code == 401
    wrong = {"Authorization": f"Bearer {key}x"}
    assert post(locked_url, wrong).status_code == 401
    assert httpx2.get(f"{locked_url}/v1/models", trust_env=False).status_code == 401
    assert httpx2.get(f"{locked_url}/health", trust_env=False).status_code == 200
    right = {"Authorization": f"Bearer {key}"}
    assert post(locked_url, right).status_code == 200


def test_address_that_others_can_reach_needs_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert read_key(None, "127.0.0.1") == read_key(None, "localhost") == ""
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(InputError, match="--api-key-file"):
            read_key(None, host)
    path = tmp_path / "key"
    path.write_text("short\n")
    with pytest.raises(InputError) as error:
        read_key(path, "0.0.0.0")
    assert "short" not in str(error.value).split("key:")[1]
    path.write_text("long-enough-for-a-key\n")
    assert read_key(path, "0.0.0.0") == "long-enough-for-a-key"
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert "--api-key-file" in capsys.readouterr().err


def test_tokens_one_by_one_are_those_of_the_compiled_loop(language_model: LanguageModel) -> None:
    decoder = TokenDecoder(language_model, 400)
    rng = np.random.default_rng(1)
    for length in (1, 64, 65):
        prompt = rng.integers(1, decoder.vocabulary, length).tolist()
        [expected] = language_model.generate([prompt], 8)
        chosen = [c.token for c in decoder.reply(prompt, 8, Choice(0.0, 1.0, 0), None)]
        assert [token for token in chosen if token not in decoder.ends] == expected


def test_requests_wait_for_one_model_in_threads(url: str) -> None:
    results: list[str] = []

    def ask(seed: int) -> None:
        reply = post(url, seed=seed, temperature=1).json()
        results.append(f"{seed} {reply['choices'][0]['message']['content']}")

    alone = {
        f"{s} {post(url, seed=s, temperature=1).json()['choices'][0]['message']['content']}"
        for s in range(3)
    }
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == alone
