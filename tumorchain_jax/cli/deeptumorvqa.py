"""`tumorchain deeptumorvqa`: ask and score DeepTumorVQA, versions 1 and 2."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.evaluate_endpoint import add_sending_options
from tumorchain_jax.cli.options import Command, use_compilation_cache
from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.evaluation.deeptumorvqa.answerers import Answerer
    from tumorchain_jax.evaluation.deeptumorvqa.questions import QuestionFile

RULES = ["fixed", "upstream", "v1"]
BOTH = ("fixed", "upstream")
AGENTS = ["nano", "rules", "majority", "chance"]


def add_command(command: Command) -> None:
    """Add the subcommands of `deeptumorvqa`."""
    add = command("deeptumorvqa score", _score, "Score a file of answers").add_argument
    _takes_questions(add, required=False)
    _takes_format(add)
    add(
        "-i",
        "--input",
        type=Path,
        metavar="FILE",
        help="answers, JSON lines with qid and raw_output",
    )
    add(
        "--rescore",
        type=Path,
        metavar="FILE",
        help="instead, what --json printed, or the score.json of -o, again",
    )
    add("--partial", action="store_true", help="some questions may be without an answer")
    add(
        "--rules",
        choices=[*RULES, "both"],
        default="fixed",
        help="read answers by the question's options (fixed), exactly as version 2's public scorer "
        "(upstream) or as version 1's (v1) does; both: fixed and upstream",
    )
    add("-o", "--output", type=Path, metavar="DIR", help="new folder for score, table and chart")
    add("--json", action="store_true", help="print the scores as JSON, with their items")

    add = command(
        "deeptumorvqa predict", _predict, "Answer a question file, CT by CT; resumable"
    ).add_argument
    _takes_questions(add)
    _takes_format(add)
    _takes_scans(add)
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="answers (.jsonl); a stopped run is resumed",
    )
    add(
        "--by",
        nargs="+",
        default=["nano"],
        metavar="WHO",
        help="nano (the default): a model; rules: an agent that measures on masks; majority: the "
        "most frequent answer of these very questions; chance: a random option; or: endpoint NAME, "
        "a model of the endpoints file that is sent slices",
    )
    add("-c", "--checkpoint", type=Path, metavar="DIR", help="model folder; default: nano")
    add(
        "--masks",
        choices=["true", "segment"],
        default="true",
        help="labels.nii.gz and lesions.nii.gz, or the nano segmenter's organs",
    )
    add(
        "--mismatched",
        action="store_true",
        help="show another patient's scan (the text-only baseline)",
    )
    add_sending_options(add)
    _takes_json(add)

    add = command(
        "deeptumorvqa inspect", _inspect, "Check a question file; write it in version 2's form"
    ).add_argument
    _takes_questions(add)
    _takes_scans(add)
    add("-o", "--output", type=Path, metavar="FILE", help="new file, in version 2's form")
    _takes_json(add)

    add = command(
        "deeptumorvqa export", _export, "Write a question file as a task of another harness"
    ).add_argument
    _takes_questions(add)
    _takes_format(add)
    _takes_scans(add)
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder for the task")
    add(
        "--harness",
        choices=["inspect_ai", "lmms-eval"],
        default="inspect_ai",
        help="whole CTs, or slices as pictures",
    )
    add(
        "--slices",
        metavar="POLICY",
        help="of lmms-eval: axial-16-even, axial-center-1 or three-planes",
    )
    _takes_json(add)

    add = command(
        "deeptumorvqa cases", _cases, "Hold a rule set against cases with known outcomes"
    ).add_argument
    add("file", type=Path, metavar="FILE", help="the file of cases")
    add("--rules", choices=RULES, default="fixed", help="as in score")
    _takes_json(add)


def _takes_questions(add: Callable[..., Any], required: bool = True) -> None:
    add(
        "--questions",
        type=Path,
        required=required,
        metavar="FILE",
        help="question file: CSV (version 1), JSON or JSON lines (version 2)",
    )
    add("--version", choices=["v1", "v2"], help="where the file's form does not tell")


def _takes_format(add: Callable[..., Any]) -> None:
    add("--format", choices=["mc", "freeform"], default="mc", help="one letter, or free text")


def _takes_scans(add: Callable[..., Any]) -> None:
    add("--scans", type=Path, metavar="DIR", help="CTs: ID/ct.nii.gz with masks, or ID.nii.gz")


def _takes_json(add: Callable[..., Any]) -> None:
    add("--json", action="store_true", help="print the result as JSON")


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.document import rescore, score_files, to_json
    from tumorchain_jax.evaluation.deeptumorvqa.tables import chart, document_text
    from tumorchain_jax.report.folder import check_folder, write_folder

    files = (options.questions, options.input)
    if (options.rescore and any(files)) or not (options.rescore or all(files)):
        given = zip(("--questions", "-i", "--rescore"), (*files, options.rescore), strict=True)
        found = ", ".join(flag for flag, value in given if value) or "none"
        expected = "--questions and -i, or --rescore alone"
        raise InputError("command line", "files", found, expected, "name a file for each")
    if options.output:
        check_folder(options.output, overwrite=False)
    if options.rescore:
        own = {
            "--format": options.format != "mc",
            "--rules": options.rules != "fixed",
            "--version": options.version,
            "--partial": options.partial,
        }
        _refuse_given(own, "what the file says")
        document = rescore(options.rescore)
    else:
        document = score_files(
            *files,
            options.format,
            BOTH if options.rules == "both" else (options.rules,),
            version=options.version,
            partial=options.partial,
        )
    text, values = document_text(document), to_json(document)
    if options.output:
        written = {"score.json": f"{values}\n", "score.txt": f"{text}\n{NOTICE}\n"}
        if document["scores"].get("fixed", {}).get("n_asked"):
            written["score.svg"] = chart(document)
        write_folder(options.output, written, overwrite=False)
    print(values if options.json else f"{text}\n{NOTICE}")
    fixed = document["scores"].get("fixed")
    return 1 if fixed and not fixed["n_answered"] else 0


def _predict(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.predict import check_output, predict
    from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions

    check_output(options.output)
    asked = read_questions(options.questions, options.version)
    answerer = _answerer(options, asked)
    run = predict(asked, answerer, options.format, options.output)
    count = len(asked.questions) - run.no_reply
    facts = {"file": str(options.output), "answers": count, "already_done": run.done}
    facts |= {"no_reply": run.no_reply} if run.no_reply else {}
    about = f"{options.output}: {count} answers by {answerer.model} ({answerer.shown}), "
    about += f"{run.done} already done"
    if run.no_reply:
        about += f"; {run.no_reply} questions without a reply: rerun the same command to ask again"
    print(json.dumps(facts) if options.json else f"{about}\n{NOTICE}")
    return int(run.no_reply > 0)


def _answerer(options: argparse.Namespace, asked: "QuestionFile") -> "Answerer":
    from tumorchain_jax.evaluation.deeptumorvqa.answerers import make_answerer

    if options.by[0] == "endpoint" and len(options.by) == 2:
        return _endpoint(options, asked)
    if options.by not in [[each] for each in AGENTS]:
        expected = f"{', '.join(AGENTS)}, or: endpoint NAME"
        found = " ".join(options.by)
        raise InputError("command line", "--by", found, expected, "name one")
    sent = {
        "--slices": options.slices,
        "--budget": options.budget is not None,
        "--allow-remote": options.allow_remote,
    }
    _refuse_given(sent, "--by endpoint NAME as well")
    by = options.by[0]
    if by != "nano":
        own = {"--checkpoint": options.checkpoint, "--mismatched": options.mismatched}
        own["--masks"] = by != "rules" and options.masks != "true"
        _refuse_given(own, f"nothing that {by} does not use")
    use_compilation_cache()
    return make_answerer(
        by,
        asked,
        options.format,
        scans=options.scans,
        checkpoint=options.checkpoint,
        masks=options.masks,
        mismatched=options.mismatched,
    )


def _refuse_given(flags: Mapping[str, Any], expected: str) -> None:
    """Refuse flags that would change nothing.

    Args:
        flags: flag -> whether it was given.
    """
    for flag, value in flags.items():
        if value:
            raise InputError("command line", flag, "given", expected, "leave it out")


def _endpoint(options: argparse.Namespace, asked: "QuestionFile") -> "Answerer":
    from tumorchain_jax.evaluation.chain.open_judge import find_endpoint
    from tumorchain_jax.evaluation.deeptumorvqa.answerers import other_images, scans_of
    from tumorchain_jax.evaluation.deeptumorvqa.endpoint import EndpointAnswers
    from tumorchain_jax.evaluation.slices.policy import find_policy
    from tumorchain_jax.evaluation.slices.sending import Sender

    own = {"--checkpoint": options.checkpoint, "--masks": options.masks != "true"}
    _refuse_given(own, "nothing that an endpoint does not use")
    policy = find_policy(options.slices or "")
    endpoint = find_endpoint(options.endpoints, options.by[1])
    endpoint.check_address(options.allow_remote)
    scans = scans_of(asked, options.scans)
    journal = options.output.with_name(f".{options.output.name}.replies.sqlite")
    sender = Sender(endpoint, journal, options.allow_remote, options.budget)
    others = other_images(asked) if options.mismatched else None
    return EndpointAnswers(scans, options.format, policy, sender, others)


def _inspect(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.importer import inspect, inspected_text

    facts = inspect(options.questions, options.version, options.scans, options.output)
    print(json.dumps(facts) if options.json else inspected_text(facts))
    return 0


def _export(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.harness.export import export, export_lmms
    from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions
    from tumorchain_jax.evaluation.slices.policy import find_policy

    if options.scans is None:
        raise InputError("command line", "--scans", "none", "a folder of CTs", "name one")
    if options.slices and options.harness == "inspect_ai":
        hint = "leave it out, or add --harness lmms-eval"
        raise InputError("command line", "--slices", "whole CTs", "slices", hint)
    asked = read_questions(options.questions, options.version)
    left_out = 0
    if options.harness == "inspect_ai":
        count = export(asked, options.scans, options.format, options.output)
    else:
        policy = find_policy(options.slices or "")
        count, left_out = export_lmms(asked, options.scans, options.format, policy, options.output)
    facts = {"folder": str(options.output), "samples": count, "left_out": left_out}
    about = f"{options.output}: {count} samples for {options.harness}"
    about += f", {left_out} left out: slices cannot answer them" if left_out else ""
    print(json.dumps(facts) if options.json else about)
    return 0


def _cases(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tumorchain_jax.evaluation.deeptumorvqa.cases import check_cases, checked_text

    checked = check_cases(options.file, options.rules)
    print(json.dumps(asdict(checked)) if options.json else checked_text(checked))
    # `fixed` is a proposal beside a proposal; the others must be exact.
    exact = checked.rules == "fixed" or checked.equal == checked.cases
    return 0 if exact and not checked.false_credits else 1
