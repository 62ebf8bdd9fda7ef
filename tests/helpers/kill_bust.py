"""Kill `tumorchain bust ask` at random moments, and compare with a run that nobody disturbed.

python tests/helpers/kill_bust.py --cases CASES --kills 10 --folder DIR
"""

import argparse
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from bust_replies import say

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.evaluation.bust.ask import JOURNAL, REPLIES, ask
from tumorchain_jax.llm.endpoint import read_endpoints
from tumorchain_jax.ultrasound.lexicon import load_lexicon

AT_ONCE = 4
"""Calls in flight, at most; what is lost of them with a killed process may be paid for again."""


def kept(folder: Path) -> int:
    """Replies in the journal."""
    if not (folder / JOURNAL).is_file():
        return 0
    with closing(sqlite3.connect(folder / JOURNAL)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])
        except sqlite3.OperationalError:  # not laid out yet
            return 0


def kill_at_random(
    cases: Path, folder: Path, kills: int, seed: int = 0, latency_s: float = 0.1, sweep: int = 2
) -> dict[str, int]:
    """Ask with a stub, once undisturbed and once killed again and again.

    Returns:
        `questions`; `kills` that met the run at work; `lost in flight`: replies that were paid for
        but not on the disk when a process was killed; `most at a kill`; `paid again`: replies that
        were on the disk and paid for again; whether the bytes differ.
    """
    draw = random.Random(seed)
    found = {"kills": 0, "lost in flight": 0, "most at a kill": 0}
    with StubServer(Behaviour(latency_s, say=say)) as server:
        endpoints = folder / "endpoints.toml"
        endpoints.write_text(
            f'[endpoint.stub]\nurl = "{server.url}"\nmodel = "stub-1"\nconcurrency = {AT_ONCE}\n'
            'schema = "json_schema"\n'
        )

        def start(name: str) -> subprocess.Popen[bytes]:
            words = ["-m", "tumorchain_jax.cli.main", "bust", "ask", "-i", str(cases), "-o",
                     str(folder / name), "--endpoint", "stub", "--endpoints", str(endpoints),
                     "--sweep", str(sweep)]  # fmt: skip
            return subprocess.Popen(
                [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

        stub = read_endpoints(endpoints)["stub"]
        ask(cases, None, folder / "undisturbed", stub, load_lexicon(), sweep=sweep)
        questions, total = len(server.paid), kept(folder / "undisturbed")
        server.paid.clear()
        for number in range(kills):
            process, goal = start("killed"), total * (number + draw.random()) / kills
            while process.poll() is None and kept(folder / "killed") < goal:
                time.sleep(0.01)
            found["kills"] += process.poll() is None
            process.kill()
            process.wait()
            time.sleep(2 * latency_s)  # the stub has seen that nobody listens
            lost = server.paid.total() - kept(folder / "killed") - found["lost in flight"]
            found["lost in flight"] += lost
            found["most at a kill"] = max(lost, found["most at a kill"])
        assert start("killed").wait() == 0
        found["paid again"] = server.paid.total() - total - found["lost in flight"]
    one, other = (folder / name / REPLIES for name in ("undisturbed", "killed"))
    return found | {"questions": questions, "bytes differ": one.read_bytes() != other.read_bytes()}


def main() -> None:
    """Do it and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps(kill_at_random(options.cases, folder, options.kills, options.seed)))
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
