"""Makes the experiments run by run, and the table anew after each.

DIR/experiments.json     the configuration that all of it is made with
DIR/data, DIR/test, DIR/adaptation-data, DIR/encoder    what runs share
DIR/runs/NAME-seedS/     a run's training, its checkpoint in `export`, and its answers;
                         `items.jsonl` comes last: a run that has it is done
DIR/table.md, table.json, plots/NAME.svg
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import jax
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.data.dataset import read_records
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.evaluation.ask import ask
from tumorchain_jax.evaluation.patients import StoredPatients
from tumorchain_jax.evaluation.plot import bar_chart
from tumorchain_jax.evaluation.score import Item, json_lines, read_items
from tumorchain_jax.experiments.plan import Run, configure, plan, select
from tumorchain_jax.experiments.table import Measured, markdown, results
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.pretraining.train import pretrain_encoder
from tumorchain_jax.training.registry import train

Train = Callable[[ConfigDict, Path], None]
Ask = Callable[[Path, Path, int | None], list[Item]]


def prepare_shared(config: ConfigDict, workdir: Path) -> None:
    """Make what all runs share, as far as it is not there: patients, and the encoder."""
    encoder, window = config.model.encoder, config.window
    preprocess = PreprocessConfig(encoder.image, window.level, window.width)
    vocab_size = config.model.decoder.vocab_size
    for name, patients in (("data", config.data), ("test", config.test)):
        folder, first_seed = workdir / name, patients.first_seed
        write_phantoms(folder, first_seed, patients.phantoms, preprocess, vocab_size)
    tested = {record.patient for record in read_records(workdir / "test")}
    write_split(workdir / "test", {"train": (), "test": sorted(tested)})
    if config.pretrain.patch_stage.steps:
        pretrain_encoder(config, workdir / "data", workdir)


def ask_checkpoint(checkpoint: Path, data: Path, rounds: int | None) -> list[Item]:
    """The answers of a checkpoint to what a data set's test patients are asked."""
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
    """Make what is not yet done of some experiments, or of all if none is named.

    Args:
        config: as `configs/experiments.py`.
        prepare: makes what all runs share, in `workdir`.
        train: trains by a configuration in a folder, and exports to `export` in it.
        ask: as `ask_checkpoint`.

    Returns:
        The table of all runs that are done.

    Raises:
        InputError: the configuration, a name, or a workdir that was made otherwise.
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
        jax.clear_caches()  # the next run has other programs
        write_table(runs, workdir)
    return write_table(runs, workdir)


def states(config: ConfigDict, workdir: Path) -> dict[str, str]:
    """Every run, and whether it is `done`, `begun` or `to do`."""

    def state(run: Run) -> str:
        if _items(run, workdir).is_file():
            return "done"
        return "begun" if run.folder(workdir).is_dir() else "to do"

    return {run.folder(workdir).name: state(run) for run in plan(config)}


def write_table(runs: Sequence[Run], workdir: Path) -> str:
    """Score all runs that are done, and write the table in every form; its text."""
    measured: dict[str, list[Measured]] = {}
    for run in runs:
        if _items(run, workdir).is_file():
            measured.setdefault(run.name, []).append(_measured(run, workdir))
    numbers = results(measured)
    text = markdown(numbers)
    _write(workdir / "table.json", json.dumps(numbers, indent=1) + "\n")
    _write(workdir / "table.md", text)
    for name, score in numbers["runs"].items():
        _write(workdir / "plots" / f"{name}.svg", bar_chart(score, name))
    return text


def _make(run: Run, config: ConfigDict, workdir: Path, train: Train, ask: Ask) -> None:
    folder = run.folder(workdir)
    if run.adapts:  # new patients, but the checkpoint's words
        data = Path(config.data.folder)
        data.mkdir(exist_ok=True)
        shutil.copy(Path(config.init) / "tokenizer.json", data)
    train(config, folder)
    started = time.monotonic()
    items = ask(folder / "export", workdir / "test", None if config.iir else 1)
    seconds = {"seconds": round(time.monotonic() - started, 2)}
    _write(folder / "evaluation.json", json.dumps(seconds) + "\n")
    _write(_items(run, workdir), json_lines(items))


def _items(run: Run, workdir: Path) -> Path:
    return run.folder(workdir) / "items.jsonl"


def _measured(run: Run, workdir: Path) -> Measured:
    folder = run.folder(workdir)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    # They begin again where training was stopped and went on.
    training = seconds[-1] + sum(last for last, next in pairwise(seconds) if next < last)
    evaluation = json.loads((folder / "evaluation.json").read_text())["seconds"]
    return Measured(run.seed, read_items(_items(run, workdir)), training / 60, evaluation / 60)


def _check_patients(config: ConfigDict) -> None:
    """Refuse a patient who would be both learned and tested."""
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
    """Refuse to adapt a checkpoint that neither is there nor will be."""
    if any(run.adapts for run in todo) and base not in todo and not _items(base, workdir).is_file():
        folder, hint = base.folder(workdir), f"make {base.name} first"
        raise InputError(folder, "run", "none", "one that is done, to adapt its checkpoint", hint)


def _check_settings(config: ConfigDict, workdir: Path) -> None:
    """Keep the configuration; refuse a workdir that has another."""
    path = workdir / "experiments.json"
    text = config.to_json_best_effort(indent=1) + "\n"
    if not path.is_file():
        _write(path, text)
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


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)
