"""Which records people review: a random sample, every subtask in proportion."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.engine.agents.traces import record_id
from tumorchain_jax.engine.run.outputs import SUMS, sha256_of
from tumorchain_jax.engine.run.reading import check_complete

FILE = "sample.json"


@dataclass(frozen=True)
class Sample:
    """Records of a run that were drawn.

    Attributes:
        run: hash of the run's checksums.
        subtasks: id of a record -> its subtask.
    """

    run: str
    subtasks: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits; verdicts name the sample by it."""
        content = json.dumps([self.run, sorted(self.subtasks)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def draw(run: Path, size: int, seed: int) -> Sample:
    """Draw a sample: of each subtask its share, one record at least.

    Raises:
        InputError: the run is not complete, or has no records.
    """
    check_complete(run)
    strata: dict[str, list[tuple[bytes, str]]] = {}
    with (run / "records.jsonl").open("rb") as lines:
        for line in lines:
            id = record_id(line.decode().removesuffix("\n"))
            rank = hashlib.sha256(f"{seed} {id}".encode()).digest()[:8]
            strata.setdefault(json.loads(line)["subtask"], []).append((rank, id))
    if not strata:
        raise InputError(run, "records", "none", "one or more", "see rejected.jsonl")
    shares = _shares({name: len(found) for name, found in strata.items()}, size)
    chosen = {id: name for name in sorted(strata) for _, id in sorted(strata[name])[: shares[name]]}
    return Sample(sha256_of(run / SUMS), chosen)


def _shares(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """Split a size in proportion to counts, by largest remainders; each gets one at least."""
    total = sum(counts.values())
    size = min(size, total)
    exact = {name: size * count / total for name, count in counts.items()}
    shares = {name: max(1, int(exact[name])) for name in counts}
    by_rest = sorted(counts, key=lambda name: (int(exact[name]) - exact[name], name))
    for name in by_rest[: max(0, size - sum(shares.values()))]:
        shares[name] += 1
    return shares


def write_sample(folder: Path, sample: Sample) -> None:
    """Write `sample.json`."""
    write_file(folder / FILE, (json.dumps(asdict(sample), indent=1) + "\n").encode())


def read_sample(folder: Path) -> Sample:
    """Read `sample.json`.

    Raises:
        InputError: there is none, or it is malformed.
    """
    path = folder / FILE
    try:
        values = json.loads(path.read_bytes())
        return Sample(str(values["run"]), dict(values["subtasks"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        found, expected = str(error)[:200], "a review that `tumorchain engine review` made"
        raise InputError(path, "sample", found, expected, "make the review again") from error
