"""`tumorchain evaluate --by endpoint NAME`: a model that sees slices of a scan."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.phantoms.settings import PatientSettings


def add_endpoint_options(add: Callable[..., Any]) -> None:
    """Add the flags of an endpoint as the subject."""
    add(
        "--by",
        nargs=2,
        metavar=("endpoint", "NAME"),
        help="ask a model behind an endpoint in place of a checkpoint, by slices of the scans",
    )
    add(
        "--endpoints",
        type=Path,
        default=Path("endpoints.toml"),
        metavar="FILE",
        help="where endpoints are described (llm/README.md); default: endpoints.toml",
    )
    add(
        "--slices",
        metavar="POLICY",
        help="with --by: axial-16-even, axial-center-1 or three-planes",
    )
    add("--allow-remote", action="store_true", help="with --by: let pictures leave this machine")
    add("--budget", type=float, metavar="PRICE", help="with --by: stop before more is spent")


def check_endpoint_options(options: argparse.Namespace) -> None:
    """Refuse flags that do not go together.

    Raises:
        InputError: two of them do not.
    """
    if not options.by:
        if options.slices or options.budget is not None or options.allow_remote:
            flag = "--slices" if options.slices else "--budget, --allow-remote"
            hint = "add --by endpoint NAME, or leave it out"
            raise InputError("command line", flag, "no endpoint", "--by as well", hint)
        return
    if options.by[0] != "endpoint":
        expected, found = "endpoint NAME", " ".join(options.by)
        raise InputError("command line", "--by", found, expected, "name an endpoint")
    others = {
        "--data": options.data,
        "--real": options.real,
        "--rescore": options.items,
        "--segment": options.segment,
        "--probe": options.probe,
        "--dice": options.dice,
    }
    for flag, value in others.items():
        if value:
            hint = "leave it out: endpoints are asked about digital patients"
            raise InputError("command line", flag, "--by endpoint", "--phantoms", hint)
    if not options.slices:
        hint = "for example --slices axial-16-even"
        raise InputError("command line", "--slices", "none", "a slice policy", hint)
    if not options.output:
        raise InputError("command line", "-o", "none", "a new folder", "name one")


def evaluate_by_endpoint(options: argparse.Namespace, settings: "PatientSettings") -> int:
    """Run the command."""
    from tumorchain_jax.evaluation.chain.open_judge import find_endpoint
    from tumorchain_jax.evaluation.patients import Phantoms
    from tumorchain_jax.evaluation.slices.policy import find_policy
    from tumorchain_jax.evaluation.slices.run import evaluate_endpoint
    from tumorchain_jax.inference.analyzer import Analyzer

    policy = find_policy(options.slices)
    endpoint = find_endpoint(options.endpoints, options.by[1])
    endpoint.check_address(options.allow_remote)
    # The questions are those that the checkpoint is asked, so that runs of both can be compared.
    analyzer = Analyzer.load(options.checkpoint)
    patients = Phantoms(analyzer, options.seed, options.phantoms, settings=settings)
    score, text = evaluate_endpoint(
        endpoint, policy, patients, options.output, options.allow_remote, options.budget
    )
    print(json.dumps(score) if options.json else text, end="\n" if options.json else "")
    return int(score["slices"]["states"].get("answered", 0) == 0)
