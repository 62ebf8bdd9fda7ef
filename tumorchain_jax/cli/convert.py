"""`tumorchain convert`: published weights in, PyTorch weights out."""

import argparse
import json
from pathlib import Path

from tumorchain_jax.cli.options import Command


def add_command(command: Command) -> None:
    """Add the `convert` subcommand."""
    convert = command("convert", _convert, "Published weights in, PyTorch weights out")
    add = convert.add_argument
    add("what", choices=["import", "export", "inspect", "verify"])
    add(
        "-i",
        "--input",
        type=Path,
        required=True,
        metavar="SRC",
        help="folder of weights, or hf:OWNER/NAME[@REVISION] of the Hugging Face Hub",
    )
    add(
        "-o", "--output", type=Path, metavar="DST", help="new folder; of verify, the one to compare"
    )
    add(
        "--hub",
        type=Path,
        metavar="DIR",
        help="of an export of a checkpoint, in place of -o: a repository for the Hugging Face Hub, "
        "with its code, which transformers loads",
    )
    add("--base", type=Path, metavar="DIR", help="of an adapter: the model that it was made for")
    add("--adapter", type=Path, metavar="DIR", help="of an export: imported, to be merged in")
    add("--drop-head", action="store_true", help="of an image classifier: import without its head")
    add("--tower", action="store_true", help="of Qwen2.5-VL: its vision tower as parameters too")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: as it is")
    add("--json", action="store_true", help="what was done or found as JSON")


def _convert(options: argparse.Namespace) -> int:
    from tumorchain_jax.convert.command import convert, text

    facts = convert(
        options.what,
        options.input,
        options.output,
        options.dtype,
        options.base,
        options.adapter,
        options.drop_head,
        options.tower,
        options.hub,
    )
    print(json.dumps(facts) if options.json else text(facts))
    return 0 if facts.get("same", True) else 1
