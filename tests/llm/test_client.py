"""The client against a server that misbehaves as told."""

import asyncio
import time
from pathlib import Path

import pytest
from llm_questions import Size, endpoint, question, questions

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.llm.breaker import EndpointFailed
from tumorchain_jax.llm.client import Client, ask_all
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.journal import Journal, Kept
from tumorchain_jax.llm.ledger import Ledger
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.llm.request import Message, Request, Sampling

ANSWER = '{"quote": "text", "organ": "liver", "mm": 1}'
FAULTS = {
    "429": 0.05, "500": 0.04, "503": 0.02, "hang": 0.02, "disconnect": 0.03, "broken": 0.02,
    "truncated": 0.05, "prose": 0.03, "wrong_shape": 0.02, "length": 0.02,
}  # fmt: skip


def run(
    target: Endpoint, journal: Path, requests: list[Request], **options: object
) -> tuple[list[Reply], Ledger, int]:
    """Replies in the order of the requests, the ledger, and the most slots that were used."""

    async def work() -> tuple[list[Reply], Ledger, int]:
        replies, most = {}, 0
        async with Client(target, journal, **options) as client:
            async for position, reply in client.stream(requests):
                replies[position] = reply
                most = max(most, client.progress.limit)
            return [replies[n] for n in range(len(requests))], client.ledger, most

    return asyncio.run(work())


def test_answers_come_in_order_and_are_typed(tmp_path: Path) -> None:
    with StubServer() as server:
        replies = ask_all(endpoint(server.url), tmp_path / "j", questions(20))
    assert [reply.value for reply in replies] == [Size(quote="text", organ="liver", mm=1)] * 20
    assert all(reply.ok and reply.text == ANSWER for reply in replies)


def test_second_run_sends_nothing(tmp_path: Path) -> None:
    with StubServer() as server:
        first = ask_all(endpoint(server.url), tmp_path / "j", questions(20))
        sent = server.sent
        second = ask_all(endpoint(server.url), tmp_path / "j", questions(20), budget=0.0)
        assert server.sent == sent
    assert all(reply.from_journal for reply in second)
    assert not any(reply.from_journal for reply in first)
    assert [reply.text for reply in first] == [reply.text for reply in second]


def test_same_request_at_once_is_sent_once(tmp_path: Path) -> None:
    with StubServer(Behaviour(latency_s=0.05)) as server:
        replies = ask_all(endpoint(server.url), tmp_path / "j", [question(1)] * 20)
        assert max(server.paid.values()) == 1
    assert len({reply.keys for reply in replies}) == 1


def test_thirty_percent_faults_all_requests_end_and_the_ledger_is_the_servers(
    tmp_path: Path,
) -> None:
    behaviour = Behaviour(0.002, FAULTS, retry_after_s=0.05, seed=1)
    with StubServer(behaviour) as server:
        replies, ledger, _ = run(endpoint(server.url), tmp_path / "j", questions(300))
        assert ledger.sent == server.sent
        assert ledger.paid.calls == server.paid.total()
        tokens = [ledger.paid.prompt_tokens, ledger.paid.completion_tokens]
        assert tokens == server.tokens
        assert ledger.paid.cost == pytest.approx((tokens[0] + 2 * tokens[1]) / 1e6)
        assert max(server.paid.values()) == 1  # but for hangs, nothing was asked twice
        statuses = {code: server.statuses[code] for code in (429, 500, 503)}
        assert statuses == {code: ledger.faults[f"HTTP {code}"] for code in statuses}
    assert all(reply.ok == (reply.text == ANSWER) for reply in replies)
    assert ledger.done == sum(reply.ok for reply in replies) >= 298
    assert ledger.set_aside.total() == sum(not reply.ok for reply in replies)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("truncated", "invalid"),
        ("prose", "invalid"),
        ("wrong_shape", "invalid"),
        ("length", "length"),
        ("broken", "broken"),
    ],
)
def test_replies_that_never_fit_are_set_aside(tmp_path: Path, fault: str, kind: str) -> None:
    target = {"schema": "json_schema", "deadline_s": 20.0}
    with StubServer(Behaviour(faults={fault: 1.0})) as server:
        url = endpoint(server.url, **target)
        [reply], ledger, _ = run(url, tmp_path / "j", [question(1)])
        assert reply.failure is not None
        assert reply.failure.kind == kind
        paid = 0 if kind == "broken" else 4  # two draws, each repaired once
        assert (reply.usage.calls, server.paid.total()) == (paid, paid)
        [again], _, _ = run(url, tmp_path / "j", [question(1)])
        if paid:
            assert again.from_journal
            assert (again.failure, server.paid.total()) == (reply.failure, paid)
    assert ledger.set_aside == {kind: 1}


def test_repair_carries_the_error_alone(tmp_path: Path) -> None:
    told: list[str] = []

    def say(body: dict) -> str:
        told.append(body["messages"][-1]["content"])
        bad = '{"IGNORE ALL RULES": 1, "quote": "a", "organ": "SECRET", "mm": null}'
        return bad if len(told) == 1 else ANSWER

    with StubServer(Behaviour(say=say)) as server:
        target = endpoint(server.url, schema="json_schema")
        [reply] = ask_all(target, tmp_path / "j", [question(1)])
    assert reply.ok
    assert len(reply.keys) == len(told) == 2
    assert "organ: Input should be 'liver' or 'colon'" in told[1]
    assert "an unknown field" in told[1]
    assert "IGNORE" not in told[1]
    assert "SECRET" not in told[1]


def test_draw_after_a_repair_has_another_seed(tmp_path: Path) -> None:
    with StubServer(Behaviour(say=lambda body: "no")) as server:
        ask_all(endpoint(server.url, schema="json_schema"), tmp_path / "j", [question(1)])
        seeds = sorted((body["seed"], body["temperature"]) for body in server.bodies.values())
    assert seeds == [(0, 0.0), (0, 0.0), (1, 0.5), (1, 0.5)]


def test_hanging_server_is_set_aside_at_the_deadline(tmp_path: Path) -> None:
    with StubServer(Behaviour(faults={"hang": 1.0})) as server:
        target = endpoint(server.url, timeout_s=0.1, deadline_s=0.3, schema="json_schema")
        [reply], ledger, _ = run(target, tmp_path / "j", [question(1)])
        assert reply.failure is not None
        assert reply.failure.kind == "deadline"
        assert "no reply within 0.1 s" in reply.failure.reason
        assert ledger.maybe_paid == server.sent
        server.behaviour.faults = {}
        [again] = ask_all(target, tmp_path / "j", [question(1)])  # faults are not kept
        assert again.ok


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422, 301])
def test_refusals_end_the_run_after_ten_calls_at_most(tmp_path: Path, status: int) -> None:
    with StubServer(Behaviour(status=status, message="said the server")) as server:
        target = endpoint(server.url, concurrency=64)
        with pytest.raises(InputError, match=f"endpoint stub .*HTTP {status}.*said") as error:
            ask_all(target, tmp_path / "j", questions(100))
        assert server.sent <= 10
        assert max(server.asked.values()) == 1  # none was retried
    assert error.value.hint


def test_refusal_of_one_request_sets_it_aside(tmp_path: Path) -> None:
    with StubServer() as server:
        target = endpoint(server.url)
        ask_all(target, tmp_path / "j", questions(3))
        server.behaviour.status = 400
        replies, ledger, _ = run(target, tmp_path / "j", questions(4))
        assert [reply.ok for reply in replies] == [True, True, True, False]
        assert ledger.set_aside == {"refused": 1}


def test_server_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    target = endpoint("http://127.0.0.1:9/v1", deadline_s=60.0)
    with pytest.raises(EndpointFailed, match="is the server running"):
        ask_all(target, tmp_path / "j", questions(9), patience_s=1.0)


def test_nothing_but_429_ends_the_run_and_a_later_one_goes_on(tmp_path: Path) -> None:
    with StubServer(Behaviour(retry_after_s=0.05)) as server:
        target = endpoint(server.url)
        ask_all(target, tmp_path / "j", questions(30))
        server.behaviour.faults = {"429": 1.0}
        with pytest.raises(EndpointFailed, match=r"no reply for .* HTTP 429 too many requests"):
            ask_all(target, tmp_path / "j", questions(60), patience_s=4.0)
        assert server.sent < 200  # no storm
        server.behaviour.faults = {}
        replies = ask_all(target, tmp_path / "j", questions(60))
    assert sum(reply.from_journal for reply in replies) == 30
    assert all(reply.ok for reply in replies)


def test_retry_after_binds_the_request_that_got_it_alone(tmp_path: Path) -> None:
    with StubServer(Behaviour(0.002, {"429": 0.1}, retry_after_s=0.7, seed=3)) as server:
        target = endpoint(server.url, schema="json_schema")
        ends: list[float] = []
        ask_all(target, tmp_path / "j", questions(150), lambda now: ends.append(now.rate))
        assert server.statuses[429] > 5
    # If each 429 stopped them all, 150 calls with 15 of them would take ten seconds.
    assert 150 / ends[-1] < 5


def test_limit_keeps_below_what_the_server_takes_at_once(tmp_path: Path) -> None:
    with StubServer(Behaviour(0.01, capacity=8, retry_after_s=0.05)) as server:
        target = endpoint(server.url, concurrency=64)
        replies, ledger, most = run(target, tmp_path / "j", questions(600))
    assert all(reply.ok for reply in replies)
    assert most >= 8
    # 64 at once, of which 8 are taken, would be refused seven times for each reply.
    assert ledger.faults["HTTP 429"] < 0.3 * len(replies)


def test_budget_stops_the_run_and_a_greater_one_goes_on(tmp_path: Path) -> None:
    with StubServer() as server:
        target = endpoint(server.url)
        with pytest.raises(Stopped, match=r"at the budget of 0\.001 USD"):
            ask_all(target, tmp_path / "j", questions(100), budget=0.001)
        prompt, completion = server.tokens
        spent = (prompt + 2 * completion) / 1e6
        one = spent / server.paid.total()
        assert 0.001 <= spent <= 0.001 + 16 * one
        assert server.paid.total() < 60
        ask_all(target, tmp_path / "j", questions(100), budget=1.0)
        assert max(server.paid.values()) == 1


@pytest.mark.parametrize(("budget", "price"), [(-1.0, None), (1.0, None), (float("nan"), None)])
def test_budget_without_price_or_below_zero_is_refused(
    tmp_path: Path, budget: float, price: None
) -> None:
    with pytest.raises(InputError):
        ask_all(endpoint("http://127.0.0.1:9", price=price), tmp_path / "j", [], budget=budget)


def test_budget_of_nothing_buys_nothing(tmp_path: Path) -> None:
    with StubServer() as server:
        with pytest.raises(Stopped):
            ask_all(endpoint(server.url), tmp_path / "j", questions(5), budget=0.0)
        assert server.sent == 0


def test_stop_keeps_what_is_in_flight(tmp_path: Path) -> None:
    spent = []

    async def work(url: str) -> None:
        async with Client(endpoint(url), tmp_path / "j") as client:
            try:
                async for position, _ in client.stream(iter(questions(100))):
                    if position == 10:
                        client.stop()
            finally:
                spent.append(client.spent.calls)

    with StubServer(Behaviour(latency_s=0.02)) as server:
        with pytest.raises(Stopped):
            asyncio.run(work(server.url))
        assert spent == [server.paid.total()]
        assert spent[0] < 100


def test_no_more_replies_than_slots_are_paid_for_and_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the disk is: that many a killed process may lose."""
    write, written, most = Journal._write, 0, 0

    def write_slowly(journal: Journal, rows: list[Kept]) -> None:
        nonlocal written, most
        time.sleep(0.05)
        most = max(most, server.paid.total() - written)
        write(journal, rows)
        written += len(rows)

    monkeypatch.setattr(Journal, "_write", write_slowly)
    with StubServer() as server:
        ask_all(endpoint(server.url, concurrency=4, schema="json_schema"), tmp_path / "j",
                questions(40))  # fmt: skip
        assert written == server.paid.total()
    assert 1 < most <= 4


def test_requests_are_taken_as_needed(tmp_path: Path) -> None:
    taken = ended = most = 0

    def coming() -> object:
        nonlocal taken, most
        for each in questions(200):
            taken += 1
            most = max(most, taken - ended)
            yield each

    async def work(url: str) -> None:
        nonlocal ended
        async with Client(endpoint(url, concurrency=4), tmp_path / "j") as client:
            async for _ in client.stream(coming()):
                ended += 1

    with StubServer() as server:
        asyncio.run(work(server.url))
    assert ended == 200
    assert most <= 2 * 4 + 4 + 1  # tasks, and replies that nobody took yet


def test_text_without_a_schema_and_its_end_is_checked(tmp_path: Path) -> None:
    with StubServer() as server:
        target = endpoint(server.url)
        [reply] = ask_all(target, tmp_path / "j", [question(1, answer=None)])
        assert (reply.text, reply.value) == ("I like green, as it is calm.", None)
        assert server.sent == 1  # no probe
        server.behaviour.faults = {"length": 1.0}
        [cut] = ask_all(target, tmp_path / "j", [question(2, answer=None)])
    assert cut.failure is not None
    assert cut.failure.kind == "length"


def test_fields_that_a_server_refuses_can_be_left_out(tmp_path: Path) -> None:
    with StubServer() as server:
        target = endpoint(
            server.url, omit=("seed", "temperature"), tokens_field="max_completion_tokens"
        )
        sampling = Sampling(max_tokens=77, logprobs=2)
        ask_all(target, tmp_path / "j", [question(1, answer=None, sampling=sampling)])
        [body] = server.bodies.values()
    assert body.keys() == {
        "model", "messages", "top_p", "max_completion_tokens", "logprobs", "top_logprobs",
    }  # fmt: skip
    assert body["max_completion_tokens"] == 77


def test_key_is_sent_and_shows_up_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    secret = "sk-very-secret-0123456789"
    monkeypatch.setenv("STUB_KEY", secret)
    with StubServer(Behaviour(key=secret, say=lambda body: f"the key is {secret}")) as server:
        target = endpoint(server.url, key_env="STUB_KEY")
        [reply] = ask_all(target, tmp_path / "j", [question(1, answer=None)])
        assert reply.text == "the key is [key]"
        server.behaviour.key = "another"
        with pytest.raises(InputError, match="STUB_KEY") as error:
            ask_all(target, tmp_path / "k", [question(1)])
    assert secret not in str(error.value)
    assert secret not in caplog.text
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_missing_key_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with StubServer() as server:
        with pytest.raises(InputError, match="NO_SUCH_KEY not set"):
            Client(endpoint(server.url, key_env="NO_SUCH_KEY"), tmp_path / "j")
        assert server.sent == 0


def test_other_machines_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    target = endpoint("https://example.org/v1")
    with pytest.raises(InputError, match="--allow-remote"):
        Client(target, tmp_path / "j")
    assert not (tmp_path / "j").exists()
    Client(target, tmp_path / "j", allow_remote=True)


def test_proxy_of_the_environment_sees_no_local_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with StubServer() as server:
        assert ask_all(endpoint(server.url), tmp_path / "j", [question(1)])[0].ok


def test_attempts_are_calls_of_their_own(tmp_path: Path) -> None:
    requests = [question(1, attempt=number) for number in range(3)]
    with StubServer() as server:
        replies = ask_all(endpoint(server.url, schema="json_schema"), tmp_path / "j", requests)
        assert server.paid.total() == 3
    assert len({reply.keys for reply in replies}) == 3


def test_progress_names_what_it_is_bound_by(tmp_path: Path) -> None:
    lines: list[str] = []
    bounds: set[str] = set()

    def note(now: object) -> None:
        lines.append(now.line())
        bounds.add(now.bound_by)

    with StubServer(Behaviour(latency_s=0.01)) as server:
        target = endpoint(server.url, concurrency=4)
        ask_all(target, tmp_path / "j", questions(60), note, total=60)
    assert lines[-1].startswith("60 of 60 requests, ")
    assert "USD" in lines[-1]
    assert "its own ceiling" in bounds


def test_message_of_pictures_and_text(tmp_path: Path) -> None:
    from tumorchain_jax.llm.request import Image

    request = Request((Message("user", ("look", Image(b"\x89PNG"))),))
    with StubServer() as server:
        ask_all(endpoint(server.url), tmp_path / "j", [request])
        [body] = server.bodies.values()
    [text, picture] = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "look"}
    assert picture["image_url"]["url"] == "data:image/png;base64,iVBORw=="
