"""`tumorchain demo`: a phantom and a real CT with a painted lesion, segmented and asked about."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers, use_compilation_cache
from tumorchain_jax.cli.printing import Say, phase, print_chain, print_conclusion, printer

if TYPE_CHECKING:
    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.phantoms.patient import Patient
    from tumorchain_jax.report.report import Report

FOLDER = Path("tumorchain-demo")
# Folders of the reports.
PHANTOM, CT = "phantom", "ct"


def add_command(command: Command) -> None:
    """Add the `demo` subcommand."""
    demo = command("demo", _demo, "See it work: a phantom and a real CT with a painted tumour")
    demo.add_argument(
        "-o",
        "--output",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"folder for the reports; default: {FOLDER}",
    )
    demo.add_argument("--seed", type=int, default=0, metavar="N", help="of the lesions")
    demo.add_argument("--json", action="store_true", help="print both report.json, as a list")
    demo.add_argument(
        "--overwrite", action="store_true", help="replace earlier reports in DIR without asking"
    )


def _demo(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.downloads import NotAvailable
    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.phantoms.demo_case import ct_patient, phantom_patient
    from tumorchain_jax.report.folder import check_folder

    check_numbers(options, seed=SEEDS)
    overwrite = options.overwrite or _may_replace(options.output)
    for name in (PHANTOM, CT):
        check_folder(options.output / name, overwrite)
    use_compilation_cache()
    say = printer(options.json)
    with phase("loading the model"):
        analyzer = Analyzer.load()
    pages, records = [], []
    for name, make in ((PHANTOM, phantom_patient), (CT, ct_patient)):
        try:
            with phase(f"{name}: preparing the scan"):
                patient = make(options.seed)
        except NotAvailable as error:
            say(f"\nThe example CT is not available ({error}): the demo ends with the phantom.")
            continue
        report, why = _ask(analyzer, patient, name)
        pages.append(report.save(options.output / name, overwrite) / "report.html")
        records.append(report.to_dict())
        _print(patient.synthetic, report, why, say)
    for page in pages:
        say(f"Open {page}")
    say(NOTICE)
    if options.json:
        print(json.dumps(records))
    return 0


def _may_replace(output: Path) -> bool:
    """Ask at a terminal whether an earlier demo may be replaced; elsewhere it may not."""
    earlier = any((output / name).exists() for name in (PHANTOM, CT))
    if not (earlier and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"Replace the earlier demo in {output}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _ask(analyzer: "Analyzer", patient: "Patient", name: str) -> tuple["Report", str]:
    """Ask where the tumour is.

    Returns:
        The report, and whether the answer is right or why it is wrong.
    """
    from tumorchain_jax.inference.analyzer import TASKS
    from tumorchain_jax.inference.error_source import error_source
    from tumorchain_jax.phantoms.demo_case import truth
    from tumorchain_jax.phantoms.records import largest

    with phase(f"{name}: segmenting the organs"):
        case = analyzer.prepare(patient.ct)
    with phase(f"{name}: encoding the scan and reasoning"):
        [answer] = analyzer.run([(case, TASKS["position"])])
        report = analyzer.record(answer)
    report = replace(report, truth=truth(patient), lesion=patient.lesion_map)
    if not patient.lesions:
        return report, ""
    organ = largest(patient.lesions).organ
    return report, error_source(analyzer, answer.case, report.conclusion, organ)


def _print(synthetic: str, report: "Report", why: str, say: Say) -> None:
    say(f"\n{synthetic}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    say(f"\nQuestion: {report.question}")
    print_chain(report, say)
    say("")
    print_conclusion(report, say)
    say(f"Truth:  {report.truth}")
    say(f"{why}\n")
