"""`tumorchain info`: versions, devices, tasks and organs."""

import argparse
import json

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import (
    Command,
)


def add_command(command: Command) -> None:
    """Add the `info` subcommand."""
    info = command("info", _info, "Print versions, devices, tasks and organs")
    info.add_argument("--json", action="store_true", help="print as JSON")


def _info(options: argparse.Namespace) -> int:
    import jax

    from tumorchain_jax.anatomy.organs import ORGANS
    from tumorchain_jax.inference.analyzer import TASKS
    from tumorchain_jax.inference.record import versions
    from tumorchain_jax.pretrained import NANO_CHECKPOINT

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
