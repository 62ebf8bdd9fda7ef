"""`tumorchain preflight`: check every host before a training starts."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    check_processes,
    takes_overrides,
    takes_processes,
)
from tumorchain_jax.core.remote import as_path


def add_command(command: Command) -> None:
    """Add the `preflight` subcommand."""
    preflight = command("preflight", _preflight, "Check that every host is ready for a training")
    add = preflight.add_argument
    add("--config", type=Path, required=True, metavar="CONFIG", help=CONFIG_HELP)
    add(
        "--workdir",
        type=as_path,
        required=True,
        metavar="DIR",
        help="of the training: a folder, or gs://BUCKET/FOLDER",
    )
    add("--json", action="store_true", help="print checks and hosts as JSON")
    takes_processes(preflight)
    takes_overrides(preflight)


def _preflight(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.config import read_config
    from tumorchain_jax.parallel.processes import TIMEOUT
    from tumorchain_jax.parallel.rendezvous import SINGLE_PROCESS, resolve_process
    from tumorchain_jax.training.preflight import preflight, text

    check_processes(options)
    config = read_config(options.config, options.overrides)
    place = SINGLE_PROCESS
    if options.coordinator:
        words = options.coordinator, options.processes, options.process
        place = resolve_process(*words, TIMEOUT)
    found = preflight(config, options.workdir, place)
    if place.index == 0:
        values = asdict(found) | {"ok": found.ok}
        print(json.dumps(values) if options.json else text(found))
    return 0 if found.ok else 2
