"""`tumorchain chat`: a language model alone."""

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


def add_command(command: Command) -> None:
    """Add the `chat` subcommand."""
    chat = command("chat", _chat, "A language model alone, to see that its weights are sound")
    add = chat.add_argument
    add("-c", "--checkpoint", type=Path, help="imported folder; default: SmolLM2-135M, downloaded")
    add("-p", "--prompt", help="ask this and end; default: ask at the terminal")
    add("--tokens", type=int, default=128, help="at most this many in an answer")
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--top-p", type=float, default=1.0)
    add("--seed", type=int, default=0, help="of the sampling")


def _chat(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.downloads import require_extra
    from tumorchain_jax.inference.language_model import LanguageModel, example_checkpoint, printable
    from tumorchain_jax.reasoning.generate import Sampling

    check_numbers(options, tokens=(1, 4096), seed=SEEDS)
    sampling = Sampling(options.temperature, options.top_p)
    if options.checkpoint is None:
        require_extra("chat", "gguf", "jinja2")
    use_compilation_cache()
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
