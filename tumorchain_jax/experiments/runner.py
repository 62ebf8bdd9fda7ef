"""Run the experiments one by one, and write the table after each.

DIR/experiments.json     the configuration of all runs
DIR/data, DIR/test, DIR/adaptation-data, DIR/pretrain    shared by the runs
DIR/runs/NAME-seedS/     a run's training, its checkpoint in `export`, and its answers;
                         `items.jsonl` comes last: a run that has it is done
DIR/table.md, table.json, plots/NAME.svg
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import jax
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.data.dataset import read_records
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.evaluation.ask import ask
from tumorchain_jax.evaluation.items import Item, json_lines, read_items
from tumorchain_jax.evaluation.patients import StoredPatients
from tumorchain_jax.evaluation.plot import bar_chart
from tumorchain_jax.experiments.plan import Run, configure, plan, select
from tumorchain_jax.experiments.table import Measured, markdown, results
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.settings import PatientSettings
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.pretraining.train import pretrain_encoder
from tumorchain_jax.training.registry import train

Train = Callable[[ConfigDict, Path], None]
Ask = Callable[[Path, Path, int | None], list[Item]]


def prepare_shared(config: ConfigDict, workdir: Path) -> None:
    """Make what all runs share and is not there yet: patients, and the pretrained encoder."""
    encoder, window = config.model.encoder, config.window
    preprocess = PreprocessConfig(encoder.image, window.level, window.width)
    vocab_size = config.model.decoder.vocab_size
    kind = PatientSettings(config.data.phantom_kind, config.data.anatomies)
    for name, patients in (("data", config.data), ("test", config.test)):
        folder, first_seed = workdir / name, patients.first_seed
        count, crops = patients.phantoms, config.model.crop
        write_phantoms(
            folder, first_seed, count, preprocess, vocab_size, settings=kind, crops=crops
        )
    tested = {record.patient for record in read_records(workdir / "test")}
    write_split(workdir / "test", {"train": (), "test": sorted(tested)})
    if config.pretrain.patch_stage.steps:
        pretrain_encoder(config, workdir / "data", workdir)


def ask_checkpoint(checkpoint: Path, data: Path, rounds: int | None) -> list[Item]:
    """Ask a checkpoint the questions about a data set's test patients."""
    analyzer = Analyzer.load(checkpoint, batch_size=8)
    patients = StoredPatients(analyzer, data)
    asked = (patients[number] for number in range(len(patients)))
    return ask(analyzer, asked, text_only=False, rounds=rounds)


def run_experiments(
    config: ConfigDict,
    workdir: Path,
    only: Sequence[str] = (),
    prepare: Train = prepare_shared,
    train: Train = train,
    ask: Ask = ask_checkpoint,
) -> str:
    """Make the runs that are not done yet, of some experiments or of all if none is named.

    Args:
        config: as `configs/experiments.py`.
        prepare: makes what all runs share, in `workdir`.
        train: trains by a configuration in a folder, and exports to `export` in it.
        ask: as `ask_checkpoint`.

    Returns:
        The table of all runs that are done.

    Raises:
        InputError: the configuration or a name is wrong, or the workdir has other settings.
    """
    runs = plan(config)
    todo = [run for run in select(runs, only) if not _items(run, workdir).is_file()]
    jobs = [(run, configure(config, run, runs[0], workdir)) for run in todo]
    _check_patients(config)
    _check_base(runs[0], todo, workdir)
    _check_settings(config, workdir)
    if jobs:
        prepare(config, workdir)
    for number, (run, run_config) in enumerate(jobs, start=1):
        print(f"[{number}/{len(jobs)}] {run.folder(workdir).name}", flush=True)
        _make(run, run_config, workdir, train, ask)
        jax.clear_caches()  # the next run compiles other programs
        write_table(runs, workdir)
    return write_table(runs, workdir)


def states(config: ConfigDict, workdir: Path) -> dict[str, str]:
    """Map every run to `done`, `begun` or `to do`."""

    def state(run: Run) -> str:
        if _items(run, workdir).is_file():
            return "done"
        return "begun" if run.folder(workdir).is_dir() else "to do"

    return {run.folder(workdir).name: state(run) for run in plan(config)}


def write_table(runs: Sequence[Run], workdir: Path) -> str:
    """Score all runs that are done, write the table in every form, and return its text."""
    measured: dict[str, list[Measured]] = {}
    for run in runs:
        if _items(run, workdir).is_file():
            measured.setdefault(run.name, []).append(_measured(run, workdir))
    numbers = results(measured)
    text = markdown(numbers)
    write_file(workdir / "table.json", (json.dumps(numbers, indent=1) + "\n").encode())
    write_file(workdir / "table.md", text.encode())
    for name, score in numbers["runs"].items():
        write_file(workdir / "plots" / f"{name}.svg", bar_chart(score, name).encode())
    return text


def _make(run: Run, config: ConfigDict, workdir: Path, train: Train, ask: Ask) -> None:
    folder = run.folder(workdir)
    if run.adapts:  # new patients, but the checkpoint's tokenizer
        data = Path(config.data.folder)
        data.mkdir(exist_ok=True)
        shutil.copy(Path(config.init) / "tokenizer.json", data)
    train(config, folder)
    started = time.monotonic()
    items = ask(folder / "export", workdir / "test", None if config.iir else 1)
    seconds = {"seconds": round(time.monotonic() - started, 2)}
    write_file(folder / "evaluation.json", (json.dumps(seconds) + "\n").encode())
    write_file(_items(run, workdir), json_lines(items).encode())


def _items(run: Run, workdir: Path) -> Path:
    return run.folder(workdir) / "items.jsonl"


def _measured(run: Run, workdir: Path) -> Measured:
    folder = run.folder(workdir)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    # Seconds start from 0 again where training was resumed.
    training = seconds[-1] + sum(last for last, next in pairwise(seconds) if next < last)
    evaluation = json.loads((folder / "evaluation.json").read_text())["seconds"]
    return Measured(run.seed, read_items(_items(run, workdir)), training / 60, evaluation / 60)


def _check_patients(config: ConfigDict) -> None:
    """Refuse a patient who would be in both training and test data."""
    sets = {
        name: range(config[name].first_seed, config[name].first_seed + config[name].phantoms)
        for name in ("data", "test", "adaptation")
    }
    for (name, seeds), (other, others) in combinations(sets.items(), 2):
        if max(seeds.start, others.start) < min(seeds.stop, others.stop):
            raise InputError(
                "--config",
                f"{other}.first_seed",
                f"{others.start}, {len(others)} patients",
                f"none of {name}'s {seeds.start} to {seeds.stop - 1}",
                "choose another",
            )


def _check_base(base: Run, todo: Sequence[Run], workdir: Path) -> None:
    """Refuse to adapt a checkpoint that neither exists nor will be made."""
    if any(run.adapts for run in todo) and base not in todo and not _items(base, workdir).is_file():
        folder, hint = base.folder(workdir), f"make {base.name} first"
        raise InputError(folder, "run", "none", "one that is done, to adapt its checkpoint", hint)


def _check_settings(config: ConfigDict, workdir: Path) -> None:
    """Store the configuration; refuse a workdir that has another."""
    path = workdir / "experiments.json"
    text = config.to_json_best_effort(indent=1) + "\n"
    if not path.is_file():
        write_file(path, text.encode())
        return
    try:
        found = flatten(json.loads(path.read_text()))
    except (ValueError, AttributeError, AssertionError) as error:
        hint = "name another workdir"
        raise InputError(path, "JSON", repr(str(error)), "a configuration", hint) from error
    expected = flatten(json.loads(text))
    for field in sorted(found.keys() | expected.keys()):
        before, now = found.get(field, "no such field"), expected.get(field, "no such field")
        if before != now:
            hint = "name another workdir, or set it as it was"
            raise InputError(path, field.replace("/", "."), str(before), str(now), hint)
