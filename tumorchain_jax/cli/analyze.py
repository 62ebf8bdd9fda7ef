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
from tumorchain_jax.cli.web_input import (
    INPUT_HELP,
    fetched,
    scan_input,
    store_files,
    takes_web,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.core.text import printable
from tumorchain_jax.report.folder import COMPARISON, RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tumorchain_jax.cli.printing import Say
    from tumorchain_jax.cli.web_input import Fetched
    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.inference.asked import AskedPaths
    from tumorchain_jax.report.report import Report


def add_command(command: Command) -> None:
    """Add the `analyze` subcommand."""
    analyze = command("analyze", _analyze, "Ask a question about one or several CTs")
    add = analyze.add_argument
    add(
        "-i",
        "--input",
        type=scan_input,
        nargs="+",
        required=True,
        metavar="CT",
        help=INPUT_HELP,
    )
    takes_web(analyze)
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="new folder for the report; of several scans or questions, for a folder each, "
        "index.html and summary.csv",
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
    asked.add_argument(
        "-q",
        "--question",
        action="append",
        metavar="TEXT",
        help="your own question; may be repeated: each has a report of its own, question-N",
    )
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
    add(
        "--compare",
        type=Path,
        metavar="PRIOR",
        help="an earlier CT of the same patient: ask it the same, register it to the scan, and "
        "write comparison.html with the changes of answers and organ volumes (extra compare)",
    )
    add(
        "--compare-mask",
        type=Path,
        metavar="LABELMAP",
        help="label map of PRIOR; without it PRIOR is segmented",
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
    with fetched(options) as inputs:
        return _analyze_all(options, inputs)


def _analyze_all(options: argparse.Namespace, inputs: "Fetched") -> int:
    from tqdm import tqdm

    from tumorchain_jax.inference.analyzer import TASKS, Analyzer
    from tumorchain_jax.inference.asked import list_questions, refuse_other_questions
    from tumorchain_jax.inference.case_list import list_cases
    from tumorchain_jax.inference.verdict import check_scope
    from tumorchain_jax.reasoning.generate import Sampling
    from tumorchain_jax.report.folder import check_folder, check_parent
    from tumorchain_jax.report.index import write_index

    cases = list_cases(inputs.paths, options.mask, options.output)
    if all(case.mask for case in cases) and (options.compare_mask or not options.compare):
        _refuse_segmenter_flags(options)
    questions = options.question or [TASKS[options.task]]
    for question in () if options.force else questions:
        check_scope(question)
    check_numbers(options, rounds=(1, 16), seed=SEEDS)
    asked = [each for case in cases for each in list_questions(case, questions, options.output)]
    done = [each for each in asked if options.resume and (each.output / RECORD).is_file()]
    todo = [each for each in asked if each not in done]
    several = any(each.output != options.output for each in asked)
    if several:
        check_parent(options.output, options.overwrite or options.resume)
    for each in todo:
        check_folder(each.output, options.overwrite)
    refuse_other_questions(done)
    if options.compare:
        _check_comparison(options, asked)
    if options.dicom:
        from tumorchain_jax.inference.dicom_files import check_sources

        check_sources({each.case.ct for each in todo})
    use_compilation_cache()
    segments = any(each.case.mask is None for each in todo)
    segments |= options.compare is not None and options.compare_mask is None
    analyzer = Analyzer.load(
        local_copy(options.checkpoint) if options.checkpoint else None,
        sampling=Sampling(options.temperature, options.top_p),
        max_rounds=options.rounds,
        segmenter=segmenter_of(options) if segments else None,
    )
    for question in questions:
        analyzer.check_question(question)
    say = printer(options.json)
    if done:
        say(f"{len(done)} already done")
    records, refused = [], 0
    left = [case for case in cases if any(each.case is case for each in todo)]
    for case in tqdm(left, "scans", disable=True if len(left) < 2 else None):
        wanted = [each for each in todo if each.case is case]
        try:
            for report, folder, stored in _analyze_one(analyzer, wanted, options, inputs):
                records.append(report.to_dict())
                _print(report, folder, case.name, say)
                if stored:
                    say(stored)
        except InputError as error:
            if len(cases) == 1:
                raise
            refused += 1
            tqdm.write(f"tumorchain: skipped: {error}", file=sys.stderr)
    if several:
        reported = {each.name: each.output / RECORD for each in asked}
        overview = {name: json.loads(p.read_bytes()) for name, p in reported.items() if p.is_file()}
        if overview:
            say(f"\nOverview: {write_index(options.output, overview)}")
    if options.json:
        print(json.dumps(records if len(asked) > 1 else records[0] if records else {}))
    if segments and (hint := segmenter_hint(analyzer.segmenter)):
        say(hint)
    say(NOTICE)
    return 2 if refused else 0


def _print(report: "Report", folder: Path, name: str, say: "Say") -> None:
    say(f"\n{name}: {printable(report.question, allowed='')}")
    for finding in report.forced:
        say(f"forced: {finding}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    print_chain(report, say)
    print_conclusion(report, say)
    say(f"Report: {folder / 'report.html'}")
    if (folder / COMPARISON).is_file():
        say(f"Comparison with the prior: {folder / COMPARISON}")


def _check_comparison(options: argparse.Namespace, asked: "Sequence[AskedPaths]") -> None:
    """Refuse a comparison of several scans, or where the library for it is missing."""
    from tumorchain_jax.scan.registration import check_library

    scans = len({each.case.ct for each in asked})
    if scans != 1:
        found, hint = f"{scans} scans", "compare one scan with its prior"
        raise InputError("command line", "--compare", found, "one scan", hint)
    if not options.compare.exists():
        raise InputError(options.compare, "--compare", "nothing", "an earlier CT", "check the path")
    check_library()


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
    analyzer: "Analyzer",
    asked: "Sequence[AskedPaths]",
    options: argparse.Namespace,
    inputs: "Fetched",
) -> "Iterator[tuple[Report, Path, str]]":
    """Read a scan once, ask all its questions, and write each report; say what was stored."""
    paths = asked[0].case
    case = analyzer.prepare(paths.ct, paths.mask, options.force)
    case = replace(case, source=inputs.name(paths.ct))
    if options.mask and paths.mask is None:
        lacking = f"there is no mask of this scan in {options.mask[0].name}"
        case = replace(case, warnings=(lacking, *case.warnings))
    questions = [each.question for each in asked]
    answers = analyzer.run([(case, question) for question in questions], seed=options.seed)
    reports = [analyzer.record(answer) for answer in answers]
    pages = _compared(analyzer, reports, options) if options.compare else [{}] * len(reports)
    for each, report, more in zip(asked, reports, pages, strict=True):
        if options.dicom:
            from tumorchain_jax.inference.dicom_files import report_files

            more = more | report_files(report, paths.ct)
        folder = report.save(each.output, options.overwrite, more)
        yield report, folder, store_files(inputs, paths.ct, more) if options.stow else ""


def _compared(
    analyzer: "Analyzer", reports: "Sequence[Report]", options: argparse.Namespace
) -> list[dict[str, bytes]]:
    """Ask the prior the same questions; the pages of the comparisons, by file name."""
    from tumorchain_jax.inference.comparison import compare_reports
    from tumorchain_jax.report.comparison import comparison_files

    case = analyzer.prepare(options.compare, options.compare_mask, options.force)
    asked = [(case, report.question) for report in reports]
    priors = [analyzer.record(answer) for answer in analyzer.run(asked, seed=options.seed)]
    pairs = zip(priors, reports, strict=True)
    return [comparison_files(each) for each in compare_reports(pairs)]
