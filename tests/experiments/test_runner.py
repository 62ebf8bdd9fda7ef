"""The runner with stand-ins for training and asking, which take no time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.items import Item, read_items
from tumorchain_jax.experiments.runner import run_experiments, states

FEW = ("full", "without-iir")


@dataclass
class World:
    """Stand-ins that keep a diary and may be stopped before a word of it."""

    workdir: Path
    diary: list[str] = field(default_factory=list)
    configs: dict[str, ConfigDict] = field(default_factory=dict)
    stop: str = ""

    def prepare(self, config: ConfigDict, workdir: Path) -> None:
        self._write("prepare")
        assert workdir == self.workdir

    def train(self, config: ConfigDict, workdir: Path) -> None:
        workdir.mkdir(parents=True, exist_ok=True)
        self._write(f"train {workdir.name}")
        self.configs[workdir.name] = config
        lines = [json.dumps({"step": n, "seconds": n * 60.0}) for n in (1, 2)]
        (workdir / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (workdir / "export").mkdir()
        (workdir / "export" / "tokenizer.json").write_text("the words")

    def ask(self, checkpoint: Path, data: Path, rounds: int | None) -> list[Item]:
        self._write(f"ask {checkpoint.parent.name} rounds {rounds}")
        assert data == self.workdir / "test"
        right = "without" not in str(checkpoint)
        said = "1" if right else "2"
        return [
            Item(p, "position", "organ_position", "", "q", (), "1", said, said, right) for p in "ab"
        ]

    def _write(self, line: str) -> None:
        if self.stop and line.startswith(self.stop):
            raise KeyboardInterrupt
        self.diary.append(line)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "experiments")


@pytest.fixture
def run(world: World, config: ConfigDict) -> Callable[..., str]:
    """Run some experiments; the diary of only this run is kept."""

    def run(*only: str, stop: str = "", **changes: Any) -> str:
        world.diary, world.stop = [], stop
        config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
        stages = world.prepare, world.train, world.ask
        return run_experiments(config, world.workdir, only, *stages)

    return run


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_run_is_trained_and_asked_once(world: World, run: Callable[..., str]) -> None:
    text = run(*FEW, seeds=2)
    assert world.diary == [
        "prepare",
        "train full-seed0",
        "ask full-seed0 rounds None",
        "train full-seed1",
        "ask full-seed1 rounds None",
        "train without-iir-seed0",
        "ask without-iir-seed0 rounds 1",
        "train without-iir-seed1",
        "ask without-iir-seed1 rounds 1",
    ]
    assert (world.workdir / "table.md").read_text() == text
    numbers = json.loads((world.workdir / "table.json").read_text())
    assert numbers["runs"].keys() == set(FEW)
    assert numbers["differences"]["without-iir"]["difference"] == 100
    assert numbers["runs"]["full"]["training"] == 2
    assert (world.workdir / "plots" / "full.svg").read_text().startswith("<svg")
    assert len(read_items(world.workdir / "runs" / "full-seed1" / "items.jsonl")) == 2
    before = files(world.workdir)
    assert run(*FEW) == text
    assert world.diary == []
    assert files(world.workdir) == before
    assert not [path for path in before if path.name.startswith(".")]


def test_all_experiments_are_made_when_none_is_named(world: World, run: Callable[..., str]) -> None:
    run(seeds=1)
    assert len([line for line in world.diary if line.startswith("train")]) == 13
    assert set(states(world.configs["full-seed0"], world.workdir).values()) == {"done"}


@pytest.mark.parametrize("stop", ["train full-seed1", "ask full-seed1"])
def test_stopped_run_is_begun_again_and_the_others_are_kept(
    world: World, run: Callable[..., str], config: ConfigDict, stop: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(*FEW, stop=stop, seeds=2)
    numbers = json.loads((world.workdir / "table.json").read_text())
    assert numbers["runs"]["full"]["seeds"] == [0]
    assert list(states(config, world.workdir).values())[:3] == ["done", "begun", "to do"]
    if stop.startswith("ask"):
        (world.workdir / "runs" / "full-seed1" / "export" / "tokenizer.json").unlink()
        (world.workdir / "runs" / "full-seed1" / "export").rmdir()
    run("full")
    assert world.diary == ["prepare", "train full-seed1", "ask full-seed1 rounds None"]


def test_minutes_of_a_training_that_was_stopped_add_up(
    world: World, run: Callable[..., str]
) -> None:
    run("full", seeds=1)
    path = world.workdir / "runs" / "full-seed0" / "metrics.jsonl"
    seconds = (60.0, 120.0, 30.0, 90.0)
    path.write_text("".join(json.dumps({"seconds": second}) + "\n" for second in seconds))
    run("full")
    numbers = json.loads((world.workdir / "table.json").read_text())
    assert numbers["runs"]["full"]["training"] == 3.5


def test_adapting_runs_start_from_the_first_ones_checkpoint(
    world: World, run: Callable[..., str]
) -> None:
    with pytest.raises(InputError, match=r"full-seed0: run: found none.*make full first"):
        run("lora")
    assert not world.workdir.exists()
    run("full", "lora", seeds=1)
    config = world.configs["lora-seed0"]
    assert config.init == str(world.workdir / "runs" / "full-seed0" / "export")
    data = Path(config.data.folder)
    assert data == world.workdir / "adaptation-data"
    assert (data / "tokenizer.json").read_text() == "the words"
    run("full-finetuning")
    assert world.diary[-1] == "ask full-finetuning-seed0 rounds None"


def test_workdir_of_other_settings_is_refused(world: World, run: Callable[..., str]) -> None:
    run("full", seeds=1)
    before = files(world.workdir)
    with pytest.raises(InputError, match=r"experiments\.json: data\.length: found \d+, expected 9"):
        run("full", data__length=9)
    assert files(world.workdir) == before
    (world.workdir / "experiments.json").write_text("{")
    with pytest.raises(InputError, match=r"experiments\.json: JSON"):
        run("full")


@pytest.mark.parametrize("field", ["test", "adaptation"])
def test_nobody_is_both_learned_and_tested(
    world: World, run: Callable[..., str], config: ConfigDict, field: str
) -> None:
    last = config.data.first_seed + config.data.phantoms - 1
    expected = rf"{field}\.first_seed: found {last}, .* none of data's"
    with pytest.raises(InputError, match=expected):
        run("full", **{f"{field}__first_seed": last})
    run("full", **{f"{field}__first_seed": last + 1})
