"""`tumorchain demo`: a real CT with a painted lesion, segmented and asked about."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers, use_compilation_cache
from tumorchain_jax.cli.printing import print_chain, print_conclusion, printer

FOLDER = Path("tumorchain-demo")


def add_command(command: Command) -> None:
    """Add the `demo` subcommand."""
    demo = command("demo", _demo, "See it work: a real CT with a painted tumour, and the answer")
    demo.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help=f"folder for the report; default: {FOLDER}, whose earlier report is replaced",
    )
    demo.add_argument("--seed", type=int, default=0, metavar="N", help="of the painted lesion")
    demo.add_argument("--json", action="store_true", help="print report.json")
    demo.add_argument("--overwrite", action="store_true", help="replace an earlier report in DIR")


def _demo(options: argparse.Namespace) -> int:
    from tumorchain_jax.inference.analyzer import TASKS, Analyzer
    from tumorchain_jax.phantoms.demo_case import demo_patient, truth
    from tumorchain_jax.report.folder import check_folder

    check_numbers(options, seed=SEEDS)
    use_compilation_cache()
    # The default folder is the demo's own; any other must be new, or be given up by name.
    output, overwrite = options.output or FOLDER, options.overwrite or options.output is None
    check_folder(output, overwrite)
    patient, why_not_real = demo_patient(options.seed)
    say = printer(options.json)
    if why_not_real:
        say(f"The example CT is not available ({why_not_real}); using a phantom instead.")
    say(patient.synthetic)
    analyzer = Analyzer.load()
    case = analyzer.prepare(patient.ct)
    report = replace(analyzer.batch([(case, TASKS["position"])])[0], truth=truth(patient))
    folder = report.save(output, overwrite)
    for warning in report.warnings:
        say(f"warning: {warning}")
    say(f"\nQuestion: {report.question}")
    print_chain(report, say)
    say("")
    print_conclusion(report, say)
    say(f"Truth:  {report.truth}\n")
    say(f"Open {folder / 'report.html'}\n{NOTICE}")
    if options.json:
        print(json.dumps(report.to_dict()))
    return 0
