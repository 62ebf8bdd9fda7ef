"""`tumorchain bus chains`, `ask`, `arms`, `score`, `style`: chains of thought, replies, looks."""

import argparse
import json
from pathlib import Path

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    progress_apart,
    read_task,
    takes_overrides,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError


def add_verbs(command: Command) -> None:
    """Add them to the subcommands of `bus`."""
    chains = command("bus chains", _chains, "Write records of five levels and rows of messages")
    add = chains.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder that `bus prepare` wrote")
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder")
    add("--folds", type=int, default=5, metavar="N", help="default: 5")
    add("--fold-seed", type=int, default=0, metavar="N", help="default: 0, that of `bus crossval`")
    add(
        "--with-pathology", action="store_true",
        help="chains say the pathology before the answer does, as the paper's",
    )  # fmt: skip
    add("--edition", default="5", help="of the BI-RADS lexicon (default: 5; 2025 is not whole)")
    add("--json", action="store_true", help="print the counts as JSON")

    ask = command("bus ask", _ask, "Ask a vision-language model about the lesions of a fold")
    add = ask.add_argument
    add(
        "-c", "--checkpoint", type=Path, required=True, metavar="DIR",
        help="an export of the task vision_language, or an imported Qwen2.5-VL",
    )  # fmt: skip
    add("--data", type=Path, required=True, metavar="DIR", help="folder that `bus chains` wrote")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="replies, for `bus score`")
    add("--arm", choices=("direct", "chain", "look"), default="chain", help="default: chain")
    add("--fold", type=int, default=-1, metavar="K", help="default: -1, the test part")
    add(
        "--control", choices=("none", "text", "shuffled"), default="none",
        help="text: without pictures; shuffled: with those of another lesion",
    )  # fmt: skip

    arms = command("bus arms", _arms, "Train arms on folds, ask about what each has not seen")
    add = arms.add_argument
    add("--config", type=Path, required=True, metavar="CONFIG", help=CONFIG_HELP)
    add("--data", type=Path, required=True, metavar="DIR", help="folder that `bus chains` wrote")
    add(
        "--workdir", type=Path, required=True, metavar="DIR",
        help="folder of the trainings; rerun the same command to resume",
    )  # fmt: skip
    add(
        "--arms", nargs="+", choices=("direct", "chain", "look"),
        default=["direct", "chain", "look"], help="default: all; folds come before arms",
    )  # fmt: skip
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="one or more; default: 0")
    add(
        "--controls", nargs="*", choices=("text", "shuffled"), default=["text", "shuffled"],
        help="asked besides, see `bus ask` (default: both)",
    )  # fmt: skip
    add(
        "--common-steps", type=int, default=0, metavar="N",
        help="of a training on direct answers that all arms of a fold start from (default: 0)",
    )  # fmt: skip
    add("--table", action="store_true", help="only print the table of the folds that are there")
    add("--page", type=Path, metavar="FILE", help="also write 20 replies with their pictures")
    add("--json", action="store_true", help="print the table as JSON")
    takes_overrides(arms)

    score = command("bus score", _score, "Score replies about lesions, and arms against each other")
    add = score.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="folder that `bus chains` wrote")
    add(
        "--replies", nargs="+", required=True, metavar="ARM=FILE",
        help="JSON lines of replies: id, text, and malignant or logprobs; FILE,FILE: of seeds",
    )  # fmt: skip
    add("--set", default="", metavar="NAME", help="only lesions of a data set, such as breast")
    add(
        "--part", default="test", metavar="PART",
        help="test (default: what no training has seen), folds, all, or the number of a fold",
    )  # fmt: skip
    add("--json", action="store_true", help="print the scores as JSON")

    style = command("bus style", _style, "Give pictures another device's look, and measure it")
    add = style.add_argument
    add("--config", type=Path, required=True, metavar="CONFIG", help=CONFIG_HELP)
    add("--data", type=Path, required=True, metavar="DIR", help="folder that `bus prepare` wrote")
    add(
        "--workdir", type=Path, required=True, metavar="DIR",
        help="trains CycleGAN or CUT in it, or goes on; then style.json and style.png",
    )  # fmt: skip
    add(
        "--others", type=Path, nargs="*", default=[], metavar="DIR",
        help="exports of other trainings with the same looks and folds, to compare",
    )  # fmt: skip
    add(
        "--classifier", type=Path, metavar="DIR",
        help="of malignancy, not trained on the fold that is measured: its AUROC before and after",
    )  # fmt: skip
    add("--json", action="store_true", help="print the table as JSON")
    takes_overrides(style)


def _chains(options: argparse.Namespace) -> int:
    from tumorchain_jax.ultrasound.chains.write import write_chains
    from tumorchain_jax.ultrasound.lexicon import load_lexicon

    load_lexicon(options.edition)
    if options.folds < 2:
        raise InputError("command line", "--folds", str(options.folds), "2 or more", "change it")
    facts = write_chains(
        options.data, options.output, options.folds, options.fold_seed, options.with_pathology
    )
    if options.json:
        print(json.dumps(facts))
        return 0
    print(
        f"{facts['records']} records; {facts['lesions']} lesions asked about, "
        f"{facts['test_part']} of them of the test part"
    )
    for name, count in facts["known"].items():
        beyond = facts["more_than_the_lexicon_holds"].get(name, 0)
        note = f", {beyond} of them more than the lexicon holds" if beyond else ""
        print(f"{name}: known of {count}{note}")
    return 0


def _ask(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.ask_lesions import ask
    from tumorchain_jax.inference.vision_language_model import VisionLanguageModel

    use_compilation_cache()
    model = VisionLanguageModel.load(options.checkpoint)
    where = (options.data, options.arm, options.fold, options.output)
    facts = ask(model, *where, options.control)
    print(f"asked about {facts['asked']} lesions; {facts['with_probability']} have a probability")
    return 0


def _arms(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.evaluation.ultrasound.arms import Plan, run_arms
    from tumorchain_jax.evaluation.ultrasound.arms_report import report, report_text

    use_compilation_cache()
    config = read_task(options, "vision_language", "use bus_nano_vlm")
    if not options.table:
        plan = Plan(
            options.data,
            options.workdir,
            options.arms,
            options.seeds,
            options.controls,
            options.common_steps,
        )
        with progress_apart(options):
            run_arms(config, plan)
    values = report(options.data, options.workdir)
    said = report_text(values)
    write_file(options.workdir / "arms.json", (json.dumps(values, indent=1) + "\n").encode())
    write_file(options.workdir / "arms.txt", said.encode())
    if options.page:
        from tumorchain_jax.evaluation.ultrasound.chain_page import chain_page

        write_file(options.page, chain_page(options.data, options.workdir).encode())
    print(json.dumps(values) if options.json else said)
    return 0


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.chain_scores import score_files, scores_text

    files = {}
    for each in options.replies:
        arm, is_named, path = each.partition("=")
        if not (arm and is_named and path) or arm in files:
            expected = "ARM=FILE, each arm once"
            raise InputError("command line", "--replies", each[:80], expected, "name the arms")
        files[arm] = [Path(each) for each in path.split(",")]
    values = score_files(options.data, files, options.part, options.set)
    print(json.dumps(values) if options.json else scores_text(values))
    return 0


def _style(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.evaluation.ultrasound.style import compare as style
    from tumorchain_jax.training.registry import train
    from tumorchain_jax.training.translation.train import open_pictures

    use_compilation_cache()
    config = read_task(options, "translation", "use a bus_style_... one")
    config.data.folder = str(options.data)
    train(config, options.workdir)
    methods = style.methods_of([options.workdir / "export", *options.others])
    own = style.split_looks(open_pictures(config, options.workdir), config)
    values, made = style.compare(own, methods, options.classifier)
    write_file(options.workdir / "style.json", json.dumps(values, indent=1).encode())
    style.write_grid(options.workdir / "style.png", own, made)
    print(json.dumps(values) if options.json else style.table_text(values))
    return 0
