"""`tumorchain chat`: talk to a language model, or show pictures to Qwen2.5-VL."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tumorchain_jax.cli.options import (
    SEEDS,
    Command,
    check_numbers,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable


def add_command(command: Command) -> None:
    """Add the `chat` subcommand."""
    chat = command("chat", _chat, "Talk to a language model without images, to check its weights")
    add = chat.add_argument
    add(
        "-c",
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="imported model; default: SmolLM2-135M, downloaded (93 MB)",
    )
    add("-p", "--prompt", metavar="TEXT", help="answer this and end; default: ask at the terminal")
    add(
        "--image",
        type=Path,
        action="append",
        metavar="PICTURE",
        help="to be looked at, of a Qwen2.5-VL imported with --tower, or trained here; needs "
        "--prompt; repeatable",
    )
    add("--tokens", type=int, default=128, metavar="N", help="limit on tokens of an answer")
    add("--temperature", type=float, default=0.0, metavar="T", help="of the sampling; 0: greedy")
    add("--top-p", type=float, default=1.0, metavar="P", help="nucleus of the sampling")
    add("--seed", type=int, default=0, metavar="N", help="of the sampling")


def _chat(options: argparse.Namespace) -> int:
    from tumorchain_jax.inference.language_model import (
        LanguageModel,
        check_chat,
        example_checkpoint,
    )
    from tumorchain_jax.reasoning.generate import Sampling

    if options.image and (options.prompt is None or options.checkpoint is None):
        expected, hint = "--prompt and --checkpoint", "give both"
        raise InputError("command line", "--image", str(options.image[0]), expected, hint)
    check_numbers(options, tokens=(1, 4096), seed=SEEDS)
    sampling = Sampling(options.temperature, options.top_p)
    check_chat()  # before anything is downloaded
    use_compilation_cache()
    if options.image:
        from tumorchain_jax.inference.vision_language_model import VisionLanguageModel
        from tumorchain_jax.models.qwen_vl.pictures import open_picture

        pictures = [open_picture(path) for path in options.image]
        seeing = VisionLanguageModel.load(options.checkpoint)
        said = seeing.look(pictures, options.prompt, options.tokens, sampling, options.seed)
        print(printable(said), flush=True)
        return 0
    model = LanguageModel.load(options.checkpoint or example_checkpoint())
    turns: list[dict[str, str]] = []
    for said in [options.prompt] if options.prompt is not None else _lines():
        turns.append({"role": "user", "content": said})
        answer = model.chat(turns, options.tokens, sampling, options.seed)
        turns.append({"role": "assistant", "content": answer})
        print(printable(answer), flush=True)
    return 0


def _lines() -> Iterator[str]:
    """Read lines from the terminal up to the end of the input."""
    while True:
        try:
            said = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if said.strip():
            yield said
