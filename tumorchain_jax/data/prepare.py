"""Scans and records -> a data set on disk, resumably.

The scans, in the order of their names, are cut into shards by their number alone, so the bytes do
not depend on the number of workers or on how often the run was stopped.

    DIR/skipped.jsonl           what was left out and why, one line for each scan or record
    DIR/.prepare/plan.json      which scans DIR is made from, and how
    DIR/.prepare/SHARD.json     see `data/scan_shards.py`

`dataset.json` is written last: a data set that is not complete cannot be trained on.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import remove_partial_files, write_file
from tumorchain_jax.data.dataset import FORMAT, preprocess_values, write_array_record
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.record_file import RecordFile
from tumorchain_jax.data.scan_list import ScanFiles
from tumorchain_jax.data.scan_shards import Outcome, cut, is_done, read_outcomes, write_shards
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import SIDES, write_split
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.crops import CropConfig
from tumorchain_jax.scan.preprocess import PreprocessConfig

Log = list[dict[str, Any]]
"""The lines of `skipped.jsonl`."""


@dataclass(frozen=True)
class Prepared:
    """Counts of a run: `scans` = `written` + `skipped`, `records` = `kept` + `left_out`.

    Attributes:
        already_done: scans of `written` that an earlier run wrote.
        kept: records in the data set.
        train_patients, test_patients: those that have a record in the data set.
        cpu_seconds: seconds of one core that this run's scans took.
    """

    scans: int
    written: int
    skipped: int
    already_done: int
    records: int
    kept: int
    left_out: int
    train_patients: int
    test_patients: int
    cpu_seconds: float

    @property
    def volumes_per_second_per_core(self) -> float:
        """Scans written by this run for each second of a core; 0 where it wrote none."""
        made = self.written - self.already_done
        return made / self.cpu_seconds if made else 0.0


def prepare(
    folder: Path,
    scans: Sequence[ScanFiles],
    records: RecordFile,
    split: Mapping[str, Iterable[str]],
    tokenizer: Tokenizer,
    config: PreprocessConfig,
    workers: Executor,
    crops: CropConfig | None = None,
) -> Prepared:
    """Write a data set in the layout of `data/dataset.py`.

    Left out, with a line in `skipped.jsonl`: a scan that cannot be used and its records, a record
    that looks at an organ which its scan does not show, and a record that repeats another one.
    Shards of an earlier run are reused unless a file of their scans has changed since.

    Args:
        scans: in the order of their names.
        split: every patient on one of the `SIDES`, as from `read_split`.
        workers: all of them, and this process, must see the same files under the same paths.
        crops: to cut around organs, for models that read any.

    Raises:
        InputError: the folder holds something else, the split lacks a patient or has one image on
            both sides, or no scan with a record can be used.
    """
    _check_patients(records, split)
    shards = cut(scans)
    preprocessing = preprocess_values(config, crops)
    _claim(folder, _plan(scans, preprocessing))
    done = [name for name, part in shards.items() if is_done(folder, name, part)]
    todo = {name: part for name, part in shards.items() if name not in done}
    cpu_seconds = write_shards(folder, todo, config, workers, crops)
    outcomes = [outcome for name in shards for outcome in read_outcomes(folder, name)]
    written = [outcome.name for outcome in outcomes if outcome.error is None]
    earlier = {scan.name for name in done for scan in shards[name]}
    log: Log = []
    patients = _write_records(folder, records, outcomes, log)
    kept = sum(patients.values())
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in log)
    # A file name may hold bytes that are no text; JSON knows them as escapes.
    write_file(folder / "skipped.jsonl", lines.encode(errors="backslashreplace"))
    if not kept:
        hint = f"see {folder / 'skipped.jsonl'}"
        raise InputError(records.path, "records", "none of a usable scan", "one or more", hint)
    tokenizer.save(folder)
    write_split(folder, {side: sorted(split[side]) for side in SIDES})
    check_split(folder)
    manifest = {
        "format": FORMAT,
        "source": "scans and records as they were handed in",
        "count": len(written),
        "records": kept,
        "preprocess": preprocessing,
    }
    write_file(folder / "dataset.json", json.dumps(manifest, indent=1).encode())
    return Prepared(
        scans=len(scans),
        written=len(written),
        skipped=len(outcomes) - len(written),
        already_done=len(earlier.intersection(written)),
        records=sum(records.count(scan.name) for scan in scans),
        kept=kept,
        left_out=sum(line["records"] for line in log),
        train_patients=len(patients.keys() & set(split["train"])),
        test_patients=len(patients.keys() & set(split["test"])),
        cpu_seconds=cpu_seconds,
    )


def _check_patients(records: RecordFile, split: Mapping[str, Iterable[str]]) -> None:
    known = {name for side in SIDES for name in split[side]}
    for name in sorted(set(records.patients.values()) - known):
        hint = "add the patient to one of them"
        found, expected = f"{name} in neither list", "each patient in one"
        raise InputError("split.json", "split", found, expected, hint)


def _plan(scans: Sequence[ScanFiles], preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    names = json.dumps([scan.name for scan in scans])
    return {
        "format": FORMAT,
        "preprocess": preprocessing,
        "scans": len(scans),
        "names_sha256": hashlib.sha256(names.encode()).hexdigest(),
    }


def _claim(folder: Path, plan: Mapping[str, Any]) -> None:
    """Reserve the folder for this plan; its data set is incomplete until `dataset.json` is back."""
    path, hint = folder / ".prepare" / "plan.json", "name another folder"
    if path.is_file():
        found = json.loads(path.read_bytes())
        if found != plan:
            expected = "the same scans, prepared in the same way"
            raise InputError(folder, "output", f"a data set of {found}", expected, hint)
    elif folder.is_dir() and {each.name for each in folder.iterdir()} - {".prepare"}:
        expected = "a new folder, or one that `prepare` has begun"
        raise InputError(folder, "output", "a folder of something else", expected, hint)
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found, expected = str(error.strerror), "a folder to write to"
            raise InputError(folder, "output", found, expected, hint) from error
        write_file(path, json.dumps(plan, indent=1).encode())
    (folder / "dataset.json").unlink(missing_ok=True)
    for place in (folder, path.parent):
        remove_partial_files(place)


def _write_records(
    folder: Path, records: RecordFile, outcomes: Iterable[Outcome], log: Log
) -> Counter[str]:
    """Write the usable records as one shard and log the others; count those of each patient."""
    written: Counter[str] = Counter()

    def blobs() -> Iterator[bytes]:
        for record in _usable(records, outcomes, log):
            written[record.patient] += 1
            yield record.to_json().encode()

    write_array_record(folder / "records-00000-of-00001.arrayrecord", blobs())
    return written


def _usable(records: RecordFile, outcomes: Iterable[Outcome], log: Log) -> Iterator[Record]:
    number = 0
    for outcome in outcomes:
        name = outcome.name
        if outcome.error is not None:
            log.append({"scan": name, "records": records.count(name), **outcome.error})
            continue
        log += ({"scan": name, "records": 1, **vars(error)} for error in records.repeated(name))
        for where, record in records.of_scan(name, number):
            looked_at = {organ for target in record.rounds for organ in target.look_at}
            hidden = sorted(looked_at - set(outcome.visible))
            if hidden:
                log.append({"scan": name, "records": 1, **vars(_hidden(where, hidden))})
            else:
                yield record
        number += 1


def _hidden(where: str, organs: Iterable[int]) -> InputError:
    found = f"{', '.join(display_name(organ) for organ in organs)} without a voxel"
    expected = "organs that the label map shows on the model's grid"
    return InputError(where, "look_at", found, expected, "fix the record or the label map")
