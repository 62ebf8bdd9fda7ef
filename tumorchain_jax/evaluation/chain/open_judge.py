"""Open the judge that a command names: the rules, or an endpoint with its journal of replies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.chain.endpoint import DRAWS, EndpointJudge, judge_name
from tumorchain_jax.llm.blocking import BlockingClients
from tumorchain_jax.llm.breaker import EndpointFailed
from tumorchain_jax.llm.endpoint import Endpoint, read_endpoints
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.llm.request import Request


def find_endpoint(file: Path, name: str) -> Endpoint:
    """Find an endpoint by name.

    Raises:
        InputError: the file cannot be read, or has no such endpoint.
    """
    endpoints = read_endpoints(file)
    if name not in endpoints:
        known = ", ".join(endpoints)
        raise InputError(file, "endpoint", repr(name), f"one of {known}", "name another")
    return endpoints[name]


def check_other(judge: Endpoint, subject: str, allow_self: bool) -> None:
    """Refuse a model as the judge of its own chains.

    Raises:
        InputError: the subject is not named, or is the judge.
    """
    if allow_self:
        return
    if not subject:
        expected, hint = "the model that wrote the chains", "name it by --subject"
        raise InputError("command line", "--subject", "none", expected, hint)
    own, other = (name.split("/")[-1].casefold() for name in (subject, judge.model))
    if own == other:
        hint = "take another model as the judge; --allow-self permits it"
        raise InputError("command line", "--by", f"{judge.model}, the subject itself",
                         "another model", hint)  # fmt: skip


@contextmanager
def endpoint_judge(
    endpoint: Endpoint, journal: Path, allow_remote: bool = False
) -> Iterator[EndpointJudge]:
    """Open a judge; replies that are in the journal are not asked for again.

    Raises:
        InputError: the endpoint cannot be used; while judging, also where it gives no reply.
    """
    options = {"allow_remote": allow_remote, "draws": DRAWS}
    journal.parent.mkdir(parents=True, exist_ok=True)
    with BlockingClients(journal, **options) as clients:

        def ask(request: Request) -> Reply:
            try:
                return clients.ask(endpoint, request)
            except EndpointFailed as error:
                expected, hint = "replies", "rerun the same command to go on"
                raise InputError(endpoint.name, "endpoint", str(error), expected, hint) from error

        yield EndpointJudge(judge_name(endpoint), endpoint.concurrency, ask)
