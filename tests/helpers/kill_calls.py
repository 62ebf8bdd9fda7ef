"""Kill a process that asks a stub endpoint, again and again; count what is paid for twice.

python tests/helpers/kill_calls.py --kills 50 --requests 2000
"""

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from llm_questions import endpoint, questions

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.llm.client import ask_all

IN_FLIGHT = 8
"""Calls at once, at most; what is lost of them with a killed process may be paid for again."""


def rows(journal: Path) -> int:
    """Replies in a journal, those that failed their check and were drawn again included."""
    with closing(sqlite3.connect(journal)) as connection:
        return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])


def kill_and_resume(folder: Path, kills: int, requests: int, seed: int = 0) -> dict[str, int]:
    """Ask until killed, `kills` times, then to the end, and once more from the journal alone.

    Returns:
        `kills` that met the process at work; `lost in flight`: replies that were paid for but not
        on the disk when it was killed; `most at a kill`; `paid again`: replies that were on the
        disk and paid for again; `not kept`: questions without a kept reply at the end.
    """
    draw = random.Random(seed)
    faults = {"429": 0.05, "500": 0.05}  # none of which is paid for
    found = {"kills": 0, "lost in flight": 0, "most at a kill": 0}
    with StubServer(Behaviour(0.03, faults, retry_after_s=0.05)) as server:
        script = str(Path(__file__).with_name("asks_until_killed.py"))
        command = [sys.executable, script, server.url, str(folder / "j"), str(requests)]
        for _ in range(kills):
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()  # at work
            time.sleep(draw.uniform(0.0, 0.3))
            found["kills"] += process.poll() is None
            process.kill()
            process.wait()
            process.stdout.close()
            time.sleep(0.1)  # the stub has written what nobody reads
            lost = server.paid.total() - rows(folder / "j") - found["lost in flight"]
            found["lost in flight"] += lost
            found["most at a kill"] = max(lost, found["most at a kill"])
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"all {requests}"
        found["paid again"] = server.paid.total() - rows(folder / "j") - found["lost in flight"]
    kept = ask_all(endpoint("http://127.0.0.1:9"), folder / "j", questions(requests))
    found["not kept"] = sum(not (reply.ok and reply.from_journal) for reply in kept)
    return found


def main() -> None:
    """Do it and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = kill_and_resume(Path(folder), options.kills, options.requests, options.seed)
    print(json.dumps({"requests": options.requests, **facts}))


if __name__ == "__main__":
    main()
