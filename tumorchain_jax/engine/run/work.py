"""One case, and one shard of cases."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.engine.agents.traces import record_id, record_line
from tumorchain_jax.engine.case import Case, CaseResult
from tumorchain_jax.engine.cases import ListedCase
from tumorchain_jax.engine.run.screen import screen
from tumorchain_jax.engine.run.store import Head, Lines, Store, shard_path
from tumorchain_jax.llm.breaker import EndpointFailed

Process = Callable[[Case], CaseResult]
"""The agents: a function of the case, the settings and the replies alone."""
Prepare = Callable[[Case], Case]


def work_shard(
    folder: Path,
    shard: str,
    cases: Sequence[ListedCase],
    process: Process,
    prepare: Prepare,
    retry: bool = False,
) -> str:
    """Work on those cases of a shard that are not done; each is stored as soon as it is.

    Args:
        cases: of this shard.
        prepare: what is done with a case before the agents see it, and it is stored.
        retry: also those of which a chain, or all, was set aside.

    Returns:
        A warning: where damaged frames were put; empty if there were none.

    Raises:
        InputError, Stopped, EndpointFailed: of the agents: what befalls all cases, as an endpoint
            that is not there.
        OSError: the disk is full.
    """
    with Store(shard_path(folder, shard)) as store:
        for case in cases:
            before = store.heads.get(case.id)
            if before is not None and before.digest != case.digest:
                before = None
            if before is not None and not (retry and (before.rejected or before.error)):
                continue
            if is_draining(folder):
                break
            attempt = 1 if before is None else before.attempt + 1
            store.append(*work_case(case, process, prepare, attempt))
        if store.damaged is None:
            return ""
        return f"damaged results of earlier runs were put aside in {store.damaged}, and made again"


def work_case(
    listed: ListedCase, process: Process, prepare: Prepare, attempt: int = 1
) -> tuple[Head, Lines]:
    """Have the agents work on a case; what they cannot do is its error.

    Raises:
        InputError, Stopped, EndpointFailed, OSError, MemoryError: what befalls other cases too.
    """
    case = prepare(listed.read())
    try:
        return _outcome(case, listed.digest, attempt, process(case))
    except (InputError, Stopped, EndpointFailed, OSError, MemoryError):
        raise
    except Exception as error:  # a fault of the agents must not end a run over thousands
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        reason = reason.encode("utf-8", "backslashreplace").decode()
        line = {"case": case.id, "organ": "", "reason": reason, "attempts": attempt, "of": "case"}
        lines = {"documents": _documents(case), "rejected": [_line(line)]}
        return Head(case.id, listed.digest, attempt, error=reason), lines


def _outcome(case: Case, digest: str, attempt: int, result: CaseResult) -> tuple[Head, Lines]:
    kept, left_out = screen(result.records)
    records = [record_line(result.records[number], case.scans) for number in kept]
    ids = [record_id(line) for line in records]
    traces = [
        replace(result.traces[number], record=id, case=case.id)
        for number, id in zip(kept, ids, strict=True)
    ]
    reasons = Counter(" ".join(each.reason.split()) for each in result.rejected)
    rejected = [{"case": case.id, **_fields(each), "of": "chain"} for each in result.rejected]
    lines = {
        "records": records,
        "traces": list(map(_line, traces)),
        "facts": [_line({"id": fact.id, **_fields(fact)}) for fact in result.facts],
        "documents": _documents(case),
        "rejected": list(map(_line, rejected)),
        "discordant": [_line({"case": case.id, "text": text}) for text in result.discordant],
    }
    made = tuple((result.records[number].subtask, id) for number, id in zip(kept, ids, strict=True))
    set_aside, counts = dict(sorted(reasons.items())), dict(sorted(left_out.items()))
    return Head(case.id, digest, attempt, made, set_aside, counts), lines


def as_it_is(case: Case) -> Case:
    """Leave a case as it is."""
    return case


def drain(folder: Path) -> None:
    """Ask all workers of a folder, wherever they are, to end after their case."""
    _drain_path(folder).touch()


def is_draining(folder: Path) -> bool:
    """Whether they were asked to."""
    return _drain_path(folder).exists()


def end_draining(folder: Path) -> None:
    """Let workers begin cases again."""
    _drain_path(folder).unlink(missing_ok=True)


def _drain_path(folder: Path) -> Path:
    return folder / ".engine" / "draining"


def _documents(case: Case) -> list[str]:
    return [
        _line({"sha256": document.sha256, "case": case.id, **_fields(document)})
        for document in case.documents
    ]


def _line(values: object) -> str:
    """One line of JSON that UTF-8 can hold; half a character from a model is an error here."""
    line = json.dumps(values, ensure_ascii=False, default=_fields)
    line.encode()
    return line


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass; `dataclasses.asdict` copies all of them, in ten times the time."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
