"""What a run will take, before anything is paid."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tumorchain_jax.engine.cases import ListedCase
from tumorchain_jax.engine.run.agents import Choice


def plan(cases: Sequence[ListedCase], choice: Choice) -> dict[str, Any]:
    """Count cases and reports, and what language models are asked for them.

    Raises:
        InputError: the choice of agents cannot be had.
    """
    kinds = Counter(report.kind for case in cases for report in case.reports)
    backends = choice.by_agent()
    return {
        "cases": len(cases),
        "patients": len({case.patient for case in cases}),
        "scans": sum(len(case.scans) for case in cases),
        "reports": dict(sorted(kinds.items())),
        "languages": dict(sorted(Counter(case.language or "?" for case in cases).items())),
        "agents": backends,
        "calls": 0,
        "tokens": 0,
        "price": 0.0,
        "hours": 0.0,
    }


def text(facts: dict[str, Any]) -> str:
    """The plan as lines."""
    reports = ", ".join(f"{count} {kind}" for kind, count in facts["reports"].items())
    backends = ", ".join(f"{agent} {backend}" for agent, backend in facts["agents"].items())
    return (
        f"cases: {facts['cases']} of {facts['patients']} patients, {facts['scans']} scans\n"
        f"reports: {reports}\n"
        f"agents: {backends}\n"
        f"calls: {facts['calls']}, tokens: {facts['tokens']}, price: {facts['price']:.2f}"
    )
