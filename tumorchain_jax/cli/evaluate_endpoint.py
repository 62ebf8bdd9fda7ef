"""`tumorchain evaluate --by endpoint NAME`: a model that sees slices of a scan."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.evaluation.slices.policy import SlicePolicy
    from tumorchain_jax.phantoms.settings import PatientSettings


def add_endpoint_options(add: Callable[..., Any]) -> None:
    """Add the flags of an endpoint as the subject."""
    add(
        "--by",
        nargs=2,
        metavar=("endpoint", "NAME"),
        help="ask a model behind an endpoint in place of a checkpoint, by slices of the scans",
    )
    add_sending_options(add)
    add(
        "--export",
        choices=["lmms-eval"],
        help="with --slices and -o: ask nobody, write questions and slices as a task of it",
    )


def add_sending_options(add: Callable[..., Any]) -> None:
    """Add the flags of sending slices to an endpoint."""
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
        help="what is sent: axial-16-even, axial-center-1 or three-planes",
    )
    add("--allow-remote", action="store_true", help="let pictures leave this machine")
    add("--budget", type=float, metavar="PRICE", help="stop before an endpoint has cost more")


def check_endpoint_options(options: argparse.Namespace) -> None:
    """Refuse flags that do not go together.

    Raises:
        InputError: two of them do not.
    """
    if options.export:
        if options.by or not (options.slices and options.output):
            hint = "name a slice policy and a new folder, and no endpoint"
            raise InputError("command line", "--export", "others", "--slices and -o", hint)
    elif not options.by:
        if options.slices or options.budget is not None or options.allow_remote:
            flag = "--slices" if options.slices else "--budget, --allow-remote"
            hint = "add --by endpoint NAME, or leave it out"
            raise InputError("command line", flag, "no endpoint", "--by as well", hint)
        return
    elif options.by[0] != "endpoint":
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
            hint = "leave it out: slices are of digital patients"
            raise InputError("command line", flag, "slices", "--phantoms", hint)
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
    if options.export:
        return _export(options, policy, settings)
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


def _export(options: argparse.Namespace, policy: "SlicePolicy", settings: "PatientSettings") -> int:
    from tumorchain_jax.evaluation.patients import Phantoms
    from tumorchain_jax.evaluation.slices.export import export_task
    from tumorchain_jax.inference.analyzer import Analyzer

    analyzer = Analyzer.load(options.checkpoint)
    patients = Phantoms(analyzer, options.seed, options.phantoms, settings=settings)
    written, left_out = export_task(patients, policy, options.output)
    facts = {"folder": str(options.output), "questions": written, "left_out": left_out}
    about = f"{options.output}: {written} questions for lmms-eval, {left_out} left out: {policy} "
    print(json.dumps(facts) if options.json else f"{about}cannot answer them")
    return 0
