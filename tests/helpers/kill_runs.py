"""Kill `tumorchain engine run` at random moments, and compare with a run that nobody disturbed.

python tests/helpers/kill_runs.py --kills 50 --cases 2000 --folder DIR
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tumorchain_jax.engine.run.outputs import FILES, SUMS
from tumorchain_jax.engine.run.status import status

COMMAND = (sys.executable, "-m", "tumorchain_jax.cli.main", "engine", "run")


def start(cases: Path, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own."""
    words = [*COMMAND, "-i", str(cases), "-o", str(folder), "--workers", str(workers)]
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(cases: Path, folder: Path, workers: int) -> None:
    """Run the command to its end.

    Raises:
        RuntimeError: it fails.
    """
    process = start(cases, folder, workers)
    _, error = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {error.decode()[-500:]}")


def kill_at_random(
    cases: Path, folder: Path, workers: int, draw: random.Random, most_s: float
) -> str:
    """Start the command and kill it: all of it at once, or only the process that was started.

    Returns:
        What it was at: `start`, `cases`, `outputs`, or `end` if it was quicker.
    """
    began = _done(folder)
    process = start(cases, folder, workers)
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
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = options.folder / "reports" / "cases.jsonl"
    words = ("phantoms", "--reports", str(options.cases), "-o", str(cases.parent))
    subprocess.run([*COMMAND[:3], *words], check=True, stdout=subprocess.DEVNULL)
    undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    finish(cases, undisturbed, options.workers)
    draw, moments = random.Random(options.seed), Counter[str]()
    for _ in range(options.kills):
        moment = "end"
        while moment == "end":
            moment = kill_at_random(cases, killed, options.workers, draw, options.seconds)
        moments[moment] += 1
        if draw.random() < 0.2:
            time.sleep(0.2)  # workers whose parent was killed have ended
            tear(killed, draw)
    finish(cases, killed, options.workers)
    facts = {"kills": options.kills, "cases": options.cases, "killed at": moments}
    print(json.dumps(facts | compare(undisturbed, killed)))


if __name__ == "__main__":
    main()
