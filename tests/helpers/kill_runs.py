"""Kill `tumorchain engine run` at random moments, and compare with a run that nobody disturbed.

    python tests/helpers/kill_runs.py --kills 50 --cases 2000 --folder DIR [--stub]

With `--stub` the Calibrator is a language model behind a stub endpoint, which also counts what is
paid for twice: at most the calls in flight of each kill, and none that was on the disk.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.engine.run.agents import REPLIES
from tumorchain_jax.engine.run.outputs import FILES, SUMS
from tumorchain_jax.engine.run.status import status

COMMAND = (sys.executable, "-m", "tumorchain_jax.cli.main", "engine", "run")


def start(cases: Path, folder: Path, how: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own.

    Args:
        how: further flags.
    """
    words = [*COMMAND, "-i", str(cases), "-o", str(folder), *how]
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(cases: Path, folder: Path, how: Sequence[str]) -> None:
    """Run the command to its end.

    Raises:
        RuntimeError: it fails.
    """
    process = start(cases, folder, how)
    _, error = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {error.decode()[-500:]}")


def kill_at_random(
    cases: Path, folder: Path, how: Sequence[str], draw: random.Random, most_s: float
) -> str:
    """Start the command and kill it: all of it at once, or only the process that was started.

    Returns:
        What it was at: `start`, `cases`, `outputs`, or `end` if it was quicker.
    """
    began = _done(folder)
    process = start(cases, folder, how)
    if draw.random() < 0.8:  # the others are killed while they start, most likely
        while process.poll() is None and _done(folder) == began:
            time.sleep(0.05)
    try:
        process.wait(draw.uniform(0.0, most_s))
    except subprocess.TimeoutExpired:
        if draw.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        found = _done(folder)
        total = len(cases.read_text().splitlines())
        return "outputs" if found == total else "start" if found == began else "cases"
    finally:
        assert process.stderr is not None
        process.stderr.close()
    return "end"


def _done(folder: Path) -> int:
    return status(folder).done if (folder / ".engine" / "run.json").is_file() else 0


def tear(folder: Path, draw: random.Random) -> None:
    """Cut the last frame of a shard, as a machine that loses its power may."""
    shards = [
        path for path in (folder / ".engine" / "cases").glob("*.frames") if path.stat().st_size
    ]
    if shards:
        path = draw.choice(sorted(shards))
        os.truncate(path, path.stat().st_size - draw.randrange(1, 20))


def compare(undisturbed: Path, folder: Path) -> dict[str, int]:
    """Count what a folder has lost, doubled or otherwise.

    Returns:
        `lost`, `doubled`: records; `other files`: files whose bytes differ.
    """
    wanted, found = (
        Counter((each / "records.jsonl").read_bytes().splitlines())
        for each in (undisturbed, folder)
    )
    names = (*FILES, SUMS)
    differ = [n for n in names if (undisturbed / n).read_bytes() != (folder / n).read_bytes()]
    lost, doubled = (wanted - found).total(), (found - wanted).total()
    return {"lost": lost, "doubled": doubled, "other files": len(differ)}


def main() -> None:
    """Do it and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of work before it is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stub", action="store_true", help="a language model as Calibrator")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = options.folder / "reports" / "cases.jsonl"
    words = ("phantoms", "--reports", str(options.cases), "-o", str(cases.parent))
    subprocess.run([*COMMAND[:3], *words], check=True, stdout=subprocess.DEVNULL)
    undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    how = ["--workers", str(options.workers)]
    with StubServer(Behaviour(0.01)) as server:
        if options.stub:
            endpoints = options.folder / "endpoints.toml"
            endpoints.write_text(
                f'[endpoint.stub]\nurl = "{server.url}"\nmodel = "stub-1"\nconcurrency = 8\n'
            )
            how += ["--agent", "calibrator=llm:stub", "--endpoints", str(endpoints)]
        finish(cases, undisturbed, how)
        server.paid.clear()
        draw, moments = random.Random(options.seed), Counter[str]()
        lost = most = 0
        for _ in range(options.kills):
            moment = "end"
            while moment == "end":
                moment = kill_at_random(cases, killed, how, draw, options.seconds)
            moments[moment] += 1
            time.sleep(0.2)  # workers whose parent was killed have ended
            now = server.paid.total() - kept(killed)
            lost, most = now, max(most, now - lost)
            if draw.random() < 0.2:
                tear(killed, draw)
        finish(cases, killed, how)
        paid = {}
        if options.stub:
            again = server.paid.total() - kept(killed) - lost
            paid = {"calls": kept(killed), "lost in flight": lost, "most at a kill": most,
                    "kept and paid again": again}  # fmt: skip
    facts = {"kills": options.kills, "cases": options.cases, "killed at": moments, **paid}
    print(json.dumps(facts | compare(undisturbed, killed)))


def kept(folder: Path) -> int:
    """Replies of language models that are on the disk."""
    path = folder / ".engine" / REPLIES
    if not path.is_file():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])
        except sqlite3.OperationalError:  # not laid out yet
            return 0


if __name__ == "__main__":
    main()
