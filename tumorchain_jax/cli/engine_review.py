"""`tumorchain engine review`: people judge a sample of a run."""

import argparse
import json
from pathlib import Path

from tumorchain_jax.cli.engine_results import takes_run
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable

MOST_REVIEWED = 100_000


def add_review(command: Command) -> None:
    """Add `review`."""
    review = command(
        "engine review", _review, "Have people judge a sample; tell their rates and agreement"
    )
    takes_run(review)
    add = review.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="REVIEW",
        help="folder of the review: made with a page for each reviewer if it is not there",
    )
    add("--sample", type=int, default=5000, metavar="N", help="records to review (default: 5000)")
    add("--seed", type=int, default=0, help="seed of the sample")
    add(
        "--reviewers",
        nargs="+",
        default=["A", "B"],
        metavar="NAME",
        help="letters and digits, one page each (default: A B)",
    )
    add(
        "--verdicts",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="files that the pages wrote: print rates and agreement; write the records that were "
        "corrected to REVIEW/corrected.jsonl",
    )
    add("--serve", metavar="NAME", help="hand a reviewer's page to the browsers of this machine")
    add("--port", type=int, default=0, help="of --serve (default: one that is free)")
    add("--json", action="store_true", help="print counts or rates as JSON")


def _review(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review.page import page_name, write_review

    check_numbers(options, sample=(1, MOST_REVIEWED), seed=SEEDS, port=(0, 65535))
    if not options.output.exists():
        counts = write_review(
            options.run_folder, options.output, options.reviewers, options.sample, options.seed
        )
        if options.json and not (options.verdicts or options.serve):
            print(json.dumps({"folder": str(options.output), **counts}))
        else:
            print(f"{sum(counts.values())} records to review")
            for name in options.reviewers:
                print(f"for {name}: {options.output / page_name(name)}")
    elif not (options.verdicts or options.serve):
        from tumorchain_jax.core.files import staging_path

        staging_path(options.output)  # refuses what is there already
    if options.serve:
        return _serve(options)
    if options.verdicts:
        return _score(options)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review.server import ReviewServer

    with ReviewServer(options.output, options.serve, options.port) as server:
        print(f"{server.address}\nverdicts: {server.verdicts}\nCtrl-C ends it", flush=True)
        server.serve_forever()
    return 0


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review import verdicts
    from tumorchain_jax.engine.review.sample import read_sample

    sample = read_sample(options.output)
    files: dict[str, dict[str, verdicts.Verdict]] = {}
    for path in options.verdicts:
        reviewer, read = verdicts.read_verdicts(path, sample)
        if reviewer in files:
            expected = "one file of each reviewer"
            raise InputError(path, "reviewer", f"{reviewer} again", expected, "leave one out")
        files[reviewer] = read
    facts = verdicts.summary(sample, files)
    written, problems = verdicts.write_corrected(options.run_folder, options.output, files)
    if options.json:
        print(json.dumps(verdicts.plain(facts) | {"corrected": written, "problems": problems}))
        return 0
    print(printable(verdicts.text(facts)))
    if written or problems:
        print(f"corrected: {written} records in {options.output / verdicts.CORRECTED}")
    for problem in problems:
        print(printable(f"not taken: {problem}", allowed=""))
    return 0
