"""`tumorchain serve`: questions about CTs over HTTP and on a page, as OpenAI's API."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from tumorchain_jax.cli.options import Command, check_numbers, use_compilation_cache
from tumorchain_jax.cli.printing import phase
from tumorchain_jax.core.errors import InputError

PACKAGES = ("starlette", "uvicorn", "llguidance", "prometheus_client")
EXAMPLE = "smollm2-135m"


def add_command(command: Command) -> None:
    """Add the `serve` subcommand."""
    serve = command("serve", _serve, "Serve questions about CTs: a page, and OpenAI's API")
    add = serve.add_argument
    add(
        "-c",
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="TumorChain checkpoint (default: nano, which ships with the package); or an imported "
        f"language model, served without images; {EXAMPLE}: SmolLM2, downloaded (93 MB)",
    )
    add("--root", type=Path, metavar="DIR", help="scans in it may be asked about by their path")
    add("--slots", type=int, default=4, metavar="N", help="questions that run at once (default: 4)")
    add("--rounds", type=int, default=4, metavar="N", help="limit on rounds (default: 4)")
    add("--keep", type=int, default=3600, metavar="S", help="seconds until an upload is deleted")
    add("--upload", type=int, default=512, metavar="MB", help="size limit of one (default: 512)")
    add("--seconds", type=int, default=300, metavar="S", help="until an answer; then: 408")
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine alone")
    add("--port", type=int, default=8000, metavar="N", help="0: any that is free (default: 8000)")
    add(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="key that requests must bring; needed for an address that others can reach",
    )
    add("--name", metavar="NAME", help="of the model, in requests; default: its folder's")
    add(
        "--context",
        type=int,
        default=4096,
        metavar="N",
        help="tokens, of a language model alone",
    )
    add("--waiting", type=int, default=32, metavar="N", help="requests that may wait; then: 429")


def _serve(options: argparse.Namespace) -> int:
    for package in PACKAGES:
        if find_spec(package) is None:
            hint = "install tumorchain-jax[serve]"
            raise InputError("tumorchain serve", package, "no such package here", "it", hint)
    check_numbers(
        options,
        port=(0, 65535),
        context=(64, 131072),
        waiting=(1, 10_000),
        slots=(1, 64),
        rounds=(1, 16),
        keep=(1, 7 * 86400),
        upload=(1, 8192),
        seconds=(1, 3600),
    )
    from tumorchain_jax.serve.server import read_key

    key = read_key(options.api_key_file, options.host)  # before anything is loaded
    if options.root is not None and not options.root.is_dir():
        found, hint = f"{options.root}, no folder", "name the folder with the scans"
        raise InputError("command line", "--root", found, "a folder", hint)
    use_compilation_cache()
    if _is_language_model(options.checkpoint):
        return _serve_language_model(options, key)
    return _serve_cts(options, key)


def _is_language_model(checkpoint: Path | None) -> bool:
    if checkpoint is None:
        return False
    from tumorchain_jax.convert.imported import SOURCE

    return str(checkpoint) == EXAMPLE or (checkpoint / SOURCE).exists()


def _serve_cts(options: argparse.Namespace, key: str) -> int:
    from dataclasses import replace

    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.serve.ct.app import make_ct_app
    from tumorchain_jax.serve.ct.cases import Cases
    from tumorchain_jax.serve.ct.desk import Desk
    from tumorchain_jax.serve.ct.limits import MB, Limits
    from tumorchain_jax.serve.ct.log import log_to_stderr
    from tumorchain_jax.serve.ct.store import Store
    from tumorchain_jax.serve.server import is_local, run

    upload = options.upload * MB
    limits = replace(
        Limits(), upload=upload, answer_s=float(options.seconds), waiting=options.waiting
    )
    store = Store(options.root, float(options.keep), 8 * upload)
    try:
        with phase("loading and compiling"):
            analyzer = Analyzer.load(
                options.checkpoint, batch_size=options.slots, max_rounds=options.rounds
            )
            desk = Desk(analyzer, Cases(analyzer, limits), limits)
            desk.start()
        name = options.name or _name(options.checkpoint)
        app = make_ct_app(desk, store, name, key, anywhere=not is_local(options.host))
        log_to_stderr()

        def ready(url: str) -> None:
            print(f"{name} is served at {url}/v1; the page: {url}/", flush=True)

        run(app, options.host, options.port, ready, desk.close)
        desk.stop()
    finally:
        store.close()
    return 0


def _name(checkpoint: Path | None) -> str:
    return "nano" if checkpoint is None else checkpoint.resolve().name


def _serve_language_model(options: argparse.Namespace, key: str) -> int:
    from tumorchain_jax.inference.language_model import (
        LanguageModel,
        check_chat,
        example_checkpoint,
    )
    from tumorchain_jax.serve.app import make_app
    from tumorchain_jax.serve.server import is_local, run
    from tumorchain_jax.serve.worker import Worker

    check_chat()
    example = str(options.checkpoint) == EXAMPLE
    folder = example_checkpoint() if example else options.checkpoint
    name = options.name or (EXAMPLE if example else folder.name)
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
