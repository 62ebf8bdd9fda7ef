"""`tumorchain analyze`: ask a question about one or several CTs."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers, use_compilation_cache
from tumorchain_jax.cli.printing import print_chain, print_conclusion, printer
from tumorchain_jax.cli.segmenter_flags import segmenter_hint, segmenter_of, takes_segmenter
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.inference.case_list import CasePaths
    from tumorchain_jax.report.report import Report


def add_command(command: Command) -> None:
    """Add the `analyze` subcommand."""
    analyze = command("analyze", _analyze, "Ask a question about one or several CTs")
    add = analyze.add_argument
    add(
        "-i",
        "--input",
        type=Path,
        nargs="+",
        required=True,
        metavar="CT",
        help="NIfTI file, folder or zip archive of a DICOM series, or folder of scans (searched "
        "with all its folders; scans are named by their relative paths)",
    )
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="new folder for the report; of several scans, for a folder each, index.html and "
        "answers.csv",
    )
    add(
        "-m",
        "--mask",
        type=Path,
        nargs="+",
        default=[],
        metavar="LABELMAP",
        help="label map with TotalSegmentator v2 `total` ids, one for each scan, or a folder with "
        "NAME.nii.gz or NAME/labels.nii.gz; scans without one are segmented",
    )
    takes_segmenter(analyze, ["jax", "totalsegmentator", "none"])
    asked = analyze.add_mutually_exclusive_group()
    asked.add_argument("-q", "--question", metavar="TEXT", help="your own question")
    asked.add_argument(
        "-t",
        "--task",
        choices=["position", "report"],
        default="position",
        help="a ready-made question: where the tumour is, or a full report; default: position",
    )
    add(
        "-c",
        "--checkpoint",
        type=as_path,
        metavar="DIR",
        help="model folder, or gs://BUCKET/FOLDER; default: the nano model of the package",
    )
    add("--rounds", type=int, default=4, metavar="N", help="limit on rounds of reasoning")
    add("--temperature", type=float, default=0.0, metavar="T", help="of the sampling; 0: greedy")
    add("--top-p", type=float, default=1.0, metavar="P", help="nucleus of the sampling")
    add("--seed", type=int, default=0, metavar="N", help="of the sampling")
    add("--json", action="store_true", help="print report.json, as a list for several scans")
    add(
        "--dicom",
        action="store_true",
        help="of DICOM series: also write segmentation.dcm (SEG), report.dcm (SR) and "
        "key-image-N.dcm of the scan's own patient and study, marked as not verified (extra dicom)",
    )
    add("--overwrite", action="store_true", help="replace earlier reports")
    add("--resume", action="store_true", help="skip scans that have a report")
    add(
        "--force",
        action="store_true",
        help="continue with a scan, mask or question that is refused; the report says so",
    )


def _analyze(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from tumorchain_jax.inference.analyzer import TASKS, Analyzer
    from tumorchain_jax.inference.case_list import list_cases
    from tumorchain_jax.inference.verdict import check_scope
    from tumorchain_jax.reasoning.generate import Sampling
    from tumorchain_jax.report.folder import check_folder, check_parent
    from tumorchain_jax.report.index import write_index

    cases = list_cases(options.input, options.mask, options.output)
    if all(case.mask for case in cases):
        _refuse_segmenter_flags(options)
    question = TASKS[options.task] if options.question is None else options.question
    if not options.force:
        check_scope(question)
    check_numbers(options, rounds=(1, 16), seed=SEEDS)
    done = [case for case in cases if options.resume and (case.output / "report.json").is_file()]
    todo = [case for case in cases if case not in done]
    if any(case.output != options.output for case in cases):
        check_parent(options.output, options.overwrite or options.resume)
    for case in todo:
        check_folder(case.output, options.overwrite)
    _refuse_other_questions(done, question)
    if options.dicom:
        from tumorchain_jax.inference.dicom_files import check_sources

        check_sources(case.ct for case in todo)
    use_compilation_cache()
    analyzer = Analyzer.load(
        local_copy(options.checkpoint) if options.checkpoint else None,
        sampling=Sampling(options.temperature, options.top_p),
        max_rounds=options.rounds,
        segmenter=segmenter_of(options) if any(case.mask is None for case in todo) else None,
    )
    analyzer.check_question(question)
    say = printer(options.json)
    if done:
        say(f"{len(done)} already done")
    records, refused = [], 0
    for case in tqdm(todo, "scans", disable=True if len(todo) < 2 else None):
        try:
            report = _analyze_one(analyzer, case, question, options)
            folder = report.save(case.output, options.overwrite, _dicom_of(report, case, options))
        except InputError as error:
            if len(cases) == 1:
                raise
            refused += 1
            tqdm.write(f"tumorchain: skipped: {error}", file=sys.stderr)
            continue
        records.append(report.to_dict())
        say(f"\n{case.name}: {printable(report.question, allowed='')}")
        for finding in report.forced:
            say(f"forced: {finding}")
        for warning in report.warnings:
            say(f"warning: {warning}")
        print_chain(report, say)
        print_conclusion(report, say)
        say(f"Report: {folder / 'report.html'}")
    if any(case.output != options.output for case in cases):
        reported = {case.name: case.output / "report.json" for case in cases}
        overview = {name: json.loads(p.read_bytes()) for name, p in reported.items() if p.is_file()}
        if overview:
            say(f"\nOverview: {write_index(options.output, overview)}")
    if options.json:
        print(json.dumps(records if len(cases) > 1 else records[0] if records else {}))
    if any(case.mask is None for case in todo) and (hint := segmenter_hint(analyzer.segmenter)):
        say(hint)
    say(NOTICE)
    return 2 if refused else 0


def _dicom_of(report: "Report", case: "CasePaths", options: argparse.Namespace) -> dict[str, bytes]:
    if not options.dicom:
        return {}
    from tumorchain_jax.inference.dicom_files import report_files

    return report_files(report, case.ct)


def _refuse_other_questions(done: "Sequence[CasePaths]", question: str) -> None:
    """Refuse to complete a run of another question: its answers would stand in one table."""
    for case in done:
        path = case.output / "report.json"
        earlier = json.loads(path.read_bytes()).get("question")
        if earlier != question:
            hint = "ask the same, choose another folder, or --overwrite"
            raise InputError(path, "question", repr(earlier), repr(question), hint)


def _refuse_segmenter_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored, since no scan is segmented."""
    flags = {
        "--weights": options.weights is not None,
        "--fast": options.fast,
        "--segmenter-dtype": options.segmenter_dtype != "float32",
        "--segmenter": options.segmenter == "totalsegmentator",
    }
    for flag, asked in flags.items():
        if asked:
            hint = f"leave out {flag}, or -m"
            raise InputError("command line", flag, "masks of all scans", "a scan to segment", hint)


def _analyze_one(
    analyzer: "Analyzer", paths: "CasePaths", question: str, options: argparse.Namespace
) -> "Report":
    case = analyzer.prepare(paths.ct, paths.mask, options.force)
    if options.mask and paths.mask is None:
        lacking = f"there is no mask of this scan in {options.mask[0].name}"
        case = replace(case, warnings=(lacking, *case.warnings))
    [answer] = analyzer.run([(case, question)], seed=options.seed)
    return analyzer.record(answer)
