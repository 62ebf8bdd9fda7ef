"""`tumorchain deeptumorvqa`: question files, predictions and scores of DeepTumorVQA."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, use_compilation_cache
from tumorchain_jax.core.errors import InputError

ALL_RULES = {"both": ("fixed", "upstream")}
"""What `--rules` means besides the name of a rule set."""


def add_command(command: Command) -> None:
    """Add the `deeptumorvqa` subcommand."""
    deeptumorvqa = command(
        "deeptumorvqa", _deeptumorvqa, "Score answers to DeepTumorVQA, versions 1 and 2"
    )
    add = deeptumorvqa.add_argument
    add(
        "what",
        choices=["score", "predict", "inspect", "export", "cases"],
        help="score a file of answers; answer a question file; check a question file and write it "
        "in version 2's form; write it as a task of inspect_ai; hold the rules against a file of "
        "cases. `tumorchain phantoms --questions deeptumorvqa` makes questions about digital "
        "patients",
    )
    add("file", nargs="?", type=Path, metavar="FILE", help="cases: the file of cases")
    add(
        "--questions",
        type=Path,
        metavar="FILE",
        help="question file: CSV (version 1), JSON or JSON lines (version 2)",
    )
    add("--version", choices=["v1", "v2"], help="where the file's form does not tell")
    add("--format", choices=["mc", "freeform"], default="mc", help="one letter, or free text")
    add(
        "-i",
        "--input",
        type=Path,
        metavar="FILE",
        help="score: answers, JSON lines with qid and raw_output",
    )
    add(
        "--rescore",
        type=Path,
        metavar="FILE",
        help="score: what --json printed, or the score.json of -o, again",
    )
    add("--partial", action="store_true", help="score: some questions may be without an answer")
    add(
        "--rules",
        choices=["fixed", "upstream", "v1", "both"],
        default="fixed",
        help="read answers by the question's options (fixed), exactly as version 2's public scorer "
        "or as version 1's does; both: fixed and upstream",
    )
    add(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="score: new folder; predict: file of answers, a stopped run is resumed; inspect: "
        "file in version 2's form; export: new folder",
    )
    add("--scans", type=Path, metavar="DIR", help="CTs: ID/ct.nii.gz with masks, or ID.nii.gz")
    add(
        "--by",
        choices=["nano", "rules", "majority", "chance"],
        default="nano",
        help="predict: a model; a rule agent that measures on masks; the most frequent answer of "
        "these very questions; a random option",
    )
    add(
        "--masks",
        choices=["true", "segment"],
        default="true",
        help="predict: labels.nii.gz and lesions.nii.gz, or the nano segmenter's organs",
    )
    add(
        "--mismatched",
        action="store_true",
        help="predict: show another patient's scan (the text-only baseline)",
    )
    add("-c", "--checkpoint", type=Path, metavar="DIR", help="model folder; default: nano")
    add("--json", action="store_true", help="print the result as JSON, scores with their items")


def _deeptumorvqa(options: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "score": _score,
        "predict": _predict,
        "inspect": _inspect,
        "export": _export,
        "cases": _cases,
    }
    if options.file and options.what != "cases":
        hint = "name it with --questions or -i"
        raise InputError("command line", "FILE", str(options.file), "none", hint)
    return verbs[options.what](options)


def _needed(options: argparse.Namespace, flag: str, name: str) -> Path:
    path = getattr(options, name)
    if path is None:
        raise InputError("command line", flag, "none", f"one for {options.what}", "name one")
    return path


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.document import rescore, score_files, to_json
    from tumorchain_jax.evaluation.deeptumorvqa.tables import chart, document_text
    from tumorchain_jax.report.folder import check_folder, write_folder

    if options.output:
        check_folder(options.output, overwrite=False)
    if options.rescore:
        document = rescore(options.rescore)
    else:
        document = score_files(
            _needed(options, "--questions", "questions"),
            _needed(options, "-i", "input"),
            options.format,
            ALL_RULES.get(options.rules, (options.rules,)),
            version=options.version,
            partial=options.partial,
        )
    text, values = document_text(document), to_json(document)
    if options.output:
        files = {"score.json": f"{values}\n", "score.txt": f"{text}\n{NOTICE}\n"}
        if document["scores"].get("fixed", {}).get("n_asked"):
            files["score.svg"] = chart(document)
        write_folder(options.output, files, overwrite=False)
    print(values if options.json else f"{text}\n{NOTICE}")
    fixed = document["scores"].get("fixed")
    return 1 if fixed and not fixed["n_answered"] else 0


def _predict(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.answerers import make_answerer
    from tumorchain_jax.evaluation.deeptumorvqa.predict import predict
    from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions

    asked = read_questions(_needed(options, "--questions", "questions"), options.version)
    output = _needed(options, "-o", "output")
    use_compilation_cache()
    answerer = make_answerer(
        options.by,
        asked,
        options.format,
        scans=options.scans,
        checkpoint=options.checkpoint,
        masks=options.masks,
        mismatched=options.mismatched,
    )
    done = predict(asked, answerer, options.format, output)
    count = len(asked.questions)
    facts = {"file": str(output), "answers": count, "already_done": done}
    about = f"{output}: {count} answers by {answerer.model} ({answerer.shown}), {done} already done"
    print(json.dumps(facts) if options.json else f"{about}\n{NOTICE}")
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.importer import inspect, inspected_text

    facts = inspect(
        _needed(options, "--questions", "questions"),
        options.version,
        options.scans,
        options.output,
    )
    print(json.dumps(facts) if options.json else inspected_text(facts))
    return 0


def _export(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.deeptumorvqa.harness.export import export
    from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions

    asked = read_questions(_needed(options, "--questions", "questions"), options.version)
    output = _needed(options, "-o", "output")
    count = export(asked, _needed(options, "--scans", "scans"), options.format, output)
    facts = {"folder": str(output), "samples": count}
    print(json.dumps(facts) if options.json else f"{output}: {count} samples for inspect_ai")
    return 0


def _cases(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tumorchain_jax.evaluation.deeptumorvqa.cases import check_cases, checked_text

    if options.rules == "both":
        raise InputError("command line", "--rules", "both", "one rule set", "name one")
    checked = check_cases(_needed(options, "FILE", "file"), options.rules)
    print(json.dumps(asdict(checked)) if options.json else checked_text(checked))
    # `fixed` is a proposal beside a proposal; the others must be exact.
    exact = checked.rules == "fixed" or checked.equal == checked.cases
    return 0 if exact and not checked.false_credits else 1
