"""`tumorchain serve`: a model over HTTP, as OpenAI's API."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from tumorchain_jax.cli.options import Command, check_numbers, use_compilation_cache
from tumorchain_jax.cli.printing import phase
from tumorchain_jax.core.errors import InputError

PACKAGES = ("starlette", "uvicorn", "llguidance")


def add_command(command: Command) -> None:
    """Add the `serve` subcommand."""
    serve = command("serve", _serve, "Serve a language model over HTTP, as OpenAI's API")
    add = serve.add_argument
    add(
        "-c",
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="imported model; default: SmolLM2-135M, downloaded (93 MB)",
    )
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine alone")
    add("--port", type=int, default=8000, metavar="N", help="0: any that is free (default: 8000)")
    add(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="key that requests must bring; needed for an address that others can reach",
    )
    add("--name", metavar="NAME", help="of the model, in requests; default: its folder's")
    add("--context", type=int, default=4096, metavar="N", help="tokens of messages and reply")
    add("--waiting", type=int, default=64, metavar="N", help="requests that may wait; then: 429")


def _serve(options: argparse.Namespace) -> int:
    for package in PACKAGES:
        if find_spec(package) is None:
            hint = "install tumorchain-jax[serve]"
            raise InputError("tumorchain serve", package, "no such package here", "it", hint)
    from tumorchain_jax.inference.language_model import (
        LanguageModel,
        check_chat,
        example_checkpoint,
    )
    from tumorchain_jax.serve.app import make_app
    from tumorchain_jax.serve.server import is_local, read_key, run
    from tumorchain_jax.serve.worker import Worker

    check_numbers(options, port=(0, 65535), context=(64, 131072), waiting=(1, 10_000))
    key = read_key(options.api_key_file, options.host)  # before anything is loaded
    check_chat()
    use_compilation_cache()
    folder = options.checkpoint or example_checkpoint()
    name = options.name or (folder.name if options.checkpoint else "smollm2-135m")
    with phase("loading and compiling"):
        model = LanguageModel.load(folder)
        worker = Worker(model, name, options.waiting, options.context)
        worker.start()

    def ready(url: str) -> None:
        print(f"{name} is served at {url}/v1", flush=True)

    app = make_app(worker, key, anywhere=not is_local(options.host))
    run(app, options.host, options.port, ready)
    worker.stop()
    return 0
