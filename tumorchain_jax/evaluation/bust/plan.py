"""The statistical plan: a file that is fixed, by its hash, before any result is read."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from tumorchain_jax.core.errors import InputError


class Plan(NamedTuple):
    """The shipped plan.

    Attributes:
        sha256: of its file; stands in `run.json` from the first question on.
    """

    values: Mapping[str, Any]
    sha256: str


@lru_cache(maxsize=1)
def plan() -> Plan:
    """Read the shipped plan."""
    content = files("tumorchain_jax.evaluation.bust").joinpath("plan.json").read_bytes()
    return Plan(json.loads(content), hashlib.sha256(content).hexdigest())


def check_plan(run: Mapping[str, Any], source: object) -> None:
    """Refuse to score a run that was begun under another plan.

    Raises:
        InputError: it was.
    """
    if run.get("plan") != plan().sha256:
        found, expected = str(run.get("plan"))[:16], plan().sha256[:16]
        hint = "score it with the version that asked, or ask again"
        raise InputError(source, "plan", found, expected, hint)
