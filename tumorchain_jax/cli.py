"""The `tumorchain` command. Each subcommand is a thin call.

Exit codes: 0 done, 1 failed while running, 2 bad input or usage. Progress goes to stderr, and only
at a terminal; `--json` leaves nothing but JSON on stdout.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.analyze import Analyzer
    from tumorchain_jax.report.report import Report

SEEDS = (0, 2**32 - 1)


class _Parser(argparse.ArgumentParser):
    """Usage errors in one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"tumorchain: error: {message}; see `{self.prog} --help`\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    parser = _build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.run not in (_train, _experiments, _bench, _compile):
        parser.error(f"unknown arguments: {' '.join(rest)}")
    options.overrides = rest
    # Only its tokenizers are used here: no advice to install PyTorch on stderr.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        return options.run(options)
    except InputError as error:
        print(f"tumorchain: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tumorchain: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(options, "verbose", False):
            raise
        line = " ".join(str(error).split())[:500]
        print(
            f"tumorchain: failed: {type(error).__name__}: {line} (-v tells more)", file=sys.stderr
        )
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tumorchain", description=f"Reasoning over 3D CT. {NOTICE}")
    parser.add_argument("--version", action="version", version=f"tumorchain {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=f"{summary}. {NOTICE}")
        sub.set_defaults(run=run)
        sub.add_argument("-v", "--verbose", action="store_true", help="tracebacks on failure")
        return sub

    demo = command("demo", _demo, "A real CT with a painted lesion, asked and answered")
    demo.add_argument("-o", "--output", type=Path, default=Path("tumorchain-demo"))
    demo.add_argument("--seed", type=int, default=0, help="of the painted lesion")
    demo.add_argument("--json", action="store_true", help="report.json on stdout")

    analyze = command("analyze", _analyze, "Ask a question about one or several CTs")
    add = analyze.add_argument
    add("-i", "--input", type=Path, nargs="+", required=True, metavar="CT")
    add("-o", "--output", type=Path, required=True, metavar="DIR")
    add("-m", "--mask", type=Path, nargs="+", default=[], metavar="LABELMAP")
    asked = analyze.add_mutually_exclusive_group()
    asked.add_argument("-q", "--question")
    asked.add_argument("-t", "--task", choices=["position", "report"], default="position")
    add("-c", "--checkpoint", type=Path, help="folder; default: the nano model of the package")
    add("--rounds", type=int, default=4, help="at most this many rounds of reasoning")
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--top-p", type=float, default=1.0)
    add("--seed", type=int, default=0, help="of the sampling")
    add("--json", action="store_true", help="report.json on stdout, a list for several CTs")
    add("--overwrite", action="store_true", help="replace earlier reports")
    add("--resume", action="store_true", help="keep earlier reports, do the rest")

    train = command("train", _train, "Train from a configuration")
    train.add_argument("--config", type=Path, required=True, help="a configs/*.py file")
    train.add_argument("--workdir", type=Path, required=True)
    add = train.add_argument
    add("--coordinator", metavar="HOST:PORT", help="of the first of several processes, or auto")
    add("--processes", type=int, metavar="N", help="how many there are")
    add("--process", type=int, metavar="I", help="which this is, from 0")
    train.epilog = "Override a field with --config.a.b=value."

    evaluate = command("evaluate", _evaluate, "Accuracy on unseen digital patients, as Table 1")
    source = evaluate.add_mutually_exclusive_group()
    # A text as default: a number would be taken for not given where it is given as well.
    source.add_argument("--phantoms", type=int, default="100", help="how many; default: 100")
    source.add_argument("--data", type=Path, metavar="DIR", help="a data set's test patients")
    source.add_argument(
        "--real",
        type=Path,
        nargs=2,
        action="append",
        metavar=("CT", "LABELMAP"),
        help="a real CT to paint tumours into; may be given more than once",
    )
    source.add_argument("--items", type=Path, help="score kept answers again, without a model")
    add = evaluate.add_argument
    add("--seed", type=int, default=2_000_000, help="of the first phantom or tumour")
    add("--tumours", type=int, default=40, help="painted into each real CT; default: 40")
    add("-c", "--checkpoint", type=Path, help="default: the nano model")
    kept = evaluate.add_mutually_exclusive_group()
    kept.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="new folder for answers, score, plot and failures; a stopped run goes on",
    )
    kept.add_argument(
        "--ceiling",
        action="store_true",
        help="with --data: what a linear classifier reads in the tokens, told where lesions are",
    )
    add("--json", action="store_true", help="the score as JSON")

    experiments = command("experiments", _experiments, "The paper's experiments, one table of all")
    add = experiments.add_argument
    add("--config", type=Path, required=True, help="configs/experiments.py or one like it")
    add("--workdir", type=Path, required=True, help="what is done in it already is kept")
    add("--only", nargs="+", default=[], metavar="NAME", help="these experiments; default: all")
    add("--list", action="store_true", help="tell what there is and what is done; do nothing")
    experiments.epilog = train.epilog

    phantoms = command("phantoms", _phantoms, "Digital patients as NIfTI files, with their truth")
    phantoms.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    phantoms.add_argument("--count", type=int, default=10, help="how many")
    phantoms.add_argument("--seed", type=int, default=0, help="of the first")
    phantoms.add_argument("--json", action="store_true", help="what was done as JSON")

    convert = command("convert", _convert, "Published weights in, PyTorch weights out")
    add = convert.add_argument
    add("what", choices=["import", "export", "inspect", "verify"])
    add("-i", "--input", type=Path, required=True, metavar="SRC", help="folder of weights")
    add(
        "-o", "--output", type=Path, metavar="DST", help="new folder; of verify, the one to compare"
    )
    add("--base", type=Path, metavar="DIR", help="of an adapter: the model that it was made for")
    add("--adapter", type=Path, metavar="DIR", help="of an export: imported, to be merged in")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: as it is")
    add("--json", action="store_true", help="what was done or found as JSON")

    chat = command("chat", _chat, "A language model alone, to see that its weights are sound")
    add = chat.add_argument
    add("-c", "--checkpoint", type=Path, help="imported folder; default: SmolLM2-135M, downloaded")
    add("-p", "--prompt", help="ask this and end; default: ask at the terminal")
    add("--tokens", type=int, default=128, help="at most this many in an answer")
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--top-p", type=float, default=1.0)
    add("--seed", type=int, default=0, help="of the sampling")

    bench = command("bench", _bench, "Where the time goes on this machine")
    bench.add_argument(
        "what",
        choices=["data", "step", "decode", "loop", "convert"],
        help="phantoms; a training step; reading and writing, and the reasoning loop, at the size "
        "of Qwen2.5-0.5B, beside transformers; a checkpoint of 3B in and out, beside cp",
    )
    bench.add_argument("--config", type=Path, help="of the step")
    bench.add_argument("--json", action="store_true")
    bench.epilog = train.epilog

    compile_ = command("compile", _compile, "What a training needs on a machine, without it")
    add = compile_.add_argument
    add("--config", type=Path, required=True, help="a configs/*.py file")
    add("--target", nargs="+", required=True, help="v5e-16, v5p-32, 2xv5e-16, h100-8 and so on")
    add(
        "--program",
        nargs="+",
        choices=["train", "reason"],
        default=["train"],
        help="an optimizer step; the reasoning loop",
    )
    add("--batch", type=int, default=8, help="questions of the reasoning loop; default: 8")
    add("--json", action="store_true", help="the rows as JSON")
    compile_.epilog = train.epilog

    info = command("info", _info, "Versions, devices, tasks and organs")
    info.add_argument("--json", action="store_true")
    return parser


def _demo(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from tumorchain_jax.analyze import TASKS, Analyzer
    from tumorchain_jax.demo import demo_patient, truth
    from tumorchain_jax.report.folder import check_folder

    _check_numbers(options, seed=SEEDS)
    _use_compilation_cache()
    check_folder(options.output, overwrite=True)
    patient, why_not_real = demo_patient(options.seed)
    say = _printer(options.json)
    if why_not_real:
        say(f"The example CT cannot be had ({why_not_real}); using a digital patient instead.")
    say(patient.synthetic)
    analyzer = Analyzer.load()
    case = analyzer.prepare(patient.ct, patient.labels)
    report = replace(analyzer.batch([(case, TASKS["position"])])[0], truth=truth(patient))
    folder = report.save(options.output, overwrite=True)
    say(f"\nQuestion: {report.question}")
    _print_chain(report, say)
    say(f"\nModel:  {report.conclusion}\nTruth:  {report.truth}\n")
    say(f"Open {folder / 'report.html'}\n{NOTICE}")
    if options.json:
        print(json.dumps(report.to_dict()))
    return 0


def _analyze(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from tumorchain_jax.analyze import TASKS, Analyzer
    from tumorchain_jax.batch import list_cases
    from tumorchain_jax.reasoning.generate import Sampling
    from tumorchain_jax.report.folder import check_folder

    cases = list_cases(options.input, options.mask, options.output)
    question = TASKS[options.task] if options.question is None else options.question
    _check_numbers(options, rounds=(1, 16), seed=SEEDS)
    done = [case for case in cases if options.resume and (case.output / "report.json").is_file()]
    todo = [case for case in cases if case not in done]
    for case in todo:
        check_folder(case.output, options.overwrite)
    _use_compilation_cache()
    analyzer = Analyzer.load(
        options.checkpoint,
        sampling=Sampling(options.temperature, options.top_p),
        max_rounds=options.rounds,
    )
    analyzer.check_question(question)
    say = _printer(options.json)
    if done:
        say(f"{len(done)} already done")
    records, refused = [], 0
    for case in tqdm(todo, "scans", disable=True if len(todo) < 2 else None):
        try:
            report = _analyze_one(analyzer, case.ct, case.mask, question, options)
            folder = report.save(case.output, options.overwrite)
        except InputError as error:
            if len(cases) == 1:
                raise
            refused += 1
            tqdm.write(f"tumorchain: skipped: {error}", file=sys.stderr)
            continue
        records.append(report.to_dict())
        say(f"\n{report.source}: {report.question}")
        for warning in report.warnings:
            say(f"warning: {warning}")
        _print_chain(report, say)
        say(f"Conclusion: {report.conclusion}\nReport: {folder / 'report.html'}")
    if options.json:
        print(json.dumps(records if len(cases) > 1 else records[0] if records else {}))
    say(NOTICE)
    return 2 if refused else 0


def _analyze_one(
    analyzer: "Analyzer", ct: Path, mask: Path | None, question: str, options: argparse.Namespace
) -> "Report":
    case = analyzer.prepare(ct, mask)
    return analyzer.batch([(case, question)], seed=options.seed)[0]


def _check_numbers(options: argparse.Namespace, **limits: tuple[int, int]) -> None:
    """Options by name, each with its least and greatest value."""
    for name, (least, greatest) in limits.items():
        value = getattr(options, name)
        if not least <= value <= greatest:
            expected = f"{least} to {greatest}"
            raise InputError("command line", f"--{name}", str(value), expected, "change it")


def _train(options: argparse.Namespace) -> int:
    from tumorchain_jax.parallel.processes import join
    from tumorchain_jax.training.config import read_config
    from tumorchain_jax.training.loop import train

    if options.coordinator:
        join(options.coordinator, options.processes, options.process)
    config = read_config(options.config, options.overrides)
    train(config, options.workdir)
    print(f"checkpoint: {options.workdir / 'export'}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.command import evaluate

    if options.ceiling:
        return _ceiling(options)
    _check_numbers(options, phantoms=(1, 10**6), tumours=(1, 10**6), seed=SEEDS)
    _use_compilation_cache()
    score, text = evaluate(
        options.checkpoint,
        options.output,
        items=options.items,
        data=options.data,
        real=[(ct, labels) for ct, labels in options.real or ()],
        phantoms=options.phantoms,
        tumours=options.tumours,
        seed=options.seed,
    )
    print(json.dumps(score) if options.json else text, end="\n" if options.json else "")
    return 0


def _ceiling(options: argparse.Namespace) -> int:
    from tumorchain_jax.analyze import NANO_CHECKPOINT
    from tumorchain_jax.evaluation.ceiling import ceiling, ceiling_text
    from tumorchain_jax.training.checkpoint import load_exported

    if options.data is None:
        expected = "a data set's folder with --ceiling"
        raise InputError("command line", "--data", "none", expected, "name one")
    _use_compilation_cache()
    rows = ceiling(load_exported(options.checkpoint or NANO_CHECKPOINT), options.data)
    print(json.dumps(rows) if options.json else f"{ceiling_text(rows)}\n{NOTICE}")
    return 0


def _experiments(options: argparse.Namespace) -> int:
    from tumorchain_jax.experiments.runner import run_experiments, states
    from tumorchain_jax.training.config import read_config

    config = read_config(options.config, options.overrides)
    if options.list:
        for name, state in states(config, options.workdir).items():
            print(f"{name:<24}{state}")
        return 0
    _use_compilation_cache()
    print(run_experiments(config, options.workdir, options.only), end="")
    return 0


def _phantoms(options: argparse.Namespace) -> int:
    from tumorchain_jax.data.phantom_folder import write_phantom_folders

    _check_numbers(options, count=(1, 10**6), seed=SEEDS)
    written = write_phantom_folders(options.output, options.seed, options.count)
    speed = round(written.volumes_per_second_per_core, 2)
    if options.json:
        facts = {
            "folder": str(options.output),
            "made": written.made,
            "already_done": written.already_done,
            "volumes_per_second_per_core": speed,
        }
        print(json.dumps(facts))
        return 0
    print(f"{options.output}: {written.made} made, {written.already_done} already done")
    if written.made:
        print(f"{speed} volumes a second per core")
    print(NOTICE)
    return 0


def _convert(options: argparse.Namespace) -> int:
    from tumorchain_jax.convert.command import convert, text

    facts = convert(
        options.what,
        options.input,
        options.output,
        options.dtype,
        options.base,
        options.adapter,
    )
    print(json.dumps(facts) if options.json else text(facts))
    return 0 if facts.get("same", True) else 1


def _chat(options: argparse.Namespace) -> int:
    from tumorchain_jax.chat import LanguageModel, example_checkpoint, printable
    from tumorchain_jax.reasoning.generate import Sampling

    _check_numbers(options, tokens=(1, 4096), seed=SEEDS)
    sampling = Sampling(options.temperature, options.top_p)
    _use_compilation_cache()
    model = LanguageModel.load(options.checkpoint or example_checkpoint())
    turns: list[dict[str, str]] = []
    for said in [options.prompt] if options.prompt is not None else _lines():
        turns.append({"role": "user", "content": said})
        answer = model.chat(turns, options.tokens, sampling, options.seed)
        turns.append({"role": "assistant", "content": answer})
        print(printable(answer), flush=True)
    return 0


def _lines() -> Iterator[str]:
    """What is typed, up to the end of the input."""
    while True:
        try:
            said = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if said.strip():
            yield said


def _bench(options: argparse.Namespace) -> int:
    from tumorchain_jax.bench.convert import bench_convert
    from tumorchain_jax.bench.data import bench_data
    from tumorchain_jax.bench.decode import bench_decode
    from tumorchain_jax.bench.loop import bench_loop
    from tumorchain_jax.bench.step import bench_step
    from tumorchain_jax.bench.timing import table
    from tumorchain_jax.training.config import read_config

    others: dict[str, Any] = {
        "data": bench_data,
        "decode": bench_decode,
        "loop": bench_loop,
        "convert": bench_convert,
    }
    if options.what in others:
        values = others[options.what]()
    elif options.config is None:
        raise InputError("command line", "--config", "none", "a configs/*.py file", "name one")
    else:
        values = bench_step(read_config(options.config, options.overrides))
    print(json.dumps(values) if options.json else table(values))
    return 0


def _compile(options: argparse.Namespace) -> int:
    from tumorchain_jax.ahead_of_time.targets import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tumorchain_jax.ahead_of_time.command import compile_ahead, table
    from tumorchain_jax.training.config import read_config

    _check_numbers(options, batch=(1, 4096))
    config = read_config(options.config, options.overrides)
    rows = list(compile_ahead(config, options.target, options.program, options.batch))
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0


def _info(options: argparse.Namespace) -> int:
    import jax

    from tumorchain_jax.analyze import NANO_CHECKPOINT, TASKS, versions
    from tumorchain_jax.scan.organs import ORGANS

    facts = {
        "notice": NOTICE,
        "versions": versions(),
        "devices": [str(device) for device in jax.devices()],
        "checkpoint": str(NANO_CHECKPOINT),
        "tasks": TASKS,
        "organs": {label: name for label, name in enumerate(ORGANS) if label},
    }
    if options.json:
        print(json.dumps(facts))
        return 0
    for name, value in facts.items():
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return 0


def _printer(quiet: bool) -> Any:
    return (lambda line: None) if quiet else print


def _print_chain(report: "Report", say: Any) -> None:
    for number, text, organs in _rounds(report):
        say(f"  round {number}: {text}")
        if organs:
            say(f"           looks again at: {', '.join(organs)}")
    say(f"  stopped: {report.trace.stop_reason.replace('_', ' ')}")


def _rounds(report: "Report") -> Iterator[tuple[int, str, list[str]]]:
    from tumorchain_jax.scan.organs import display_name

    for number, each in enumerate(report.trace.rounds, start=1):
        looked = [display_name(m.label) for m in each.organs if m.outcome == "looked_at"]
        # Model text is data: no control characters reach the terminal.
        text = "".join(c if c.isprintable() else " " for c in each.text)
        yield number, text, looked


def _use_compilation_cache() -> None:
    """Compiled programs are kept for the next run, unless the user has set a place of their own."""
    import jax

    from tumorchain_jax.pip_download import cache_folder

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    sys.exit(main())
