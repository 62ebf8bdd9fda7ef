import json
import struct
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.training.metrics import MetricsLog


def write(workdir: Path, first_step: int, steps: range) -> None:
    log = MetricsLog(workdir, first_step, 9)
    for step in steps:
        log.advance()
        log.write(step, {"loss": step / 4, "learning_rate": 0.5})
    log.close()


def logged(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def events(workdir: Path) -> Iterator[Event]:
    """The records of the event files: length, checksum, a protocol buffer, checksum."""
    for path in sorted((workdir / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_metrics_have_a_line_and_a_point_on_each_board(tmp_path: Path) -> None:
    write(tmp_path, 0, range(1, 4))
    expected = [{"step": s, "loss": s / 4, "learning_rate": 0.5} for s in (1, 2, 3)]
    assert logged(tmp_path) == expected
    points = {(v.tag, e.step): v.simple_value for e in events(tmp_path) for v in e.summary.value}
    assert points == {
        (name, line["step"]): line[name] for line in expected for name in ("loss", "learning_rate")
    }


def test_metrics_are_on_disk_at_once(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0, 9)
    log.write(1, {"loss": 2.0})
    assert logged(tmp_path) == [{"step": 1, "loss": 2.0}]
    log.close()


def test_metrics_of_an_earlier_run_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, 0, range(1, 4))
    write(tmp_path, 0, range(1, 2))
    assert [line["step"] for line in logged(tmp_path)] == [1]


@pytest.mark.parametrize(
    "torn", ["", '{"step": 4, "lo', '{"step": 5, "loss": 1.25, "learning_rate"']
)
def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path, torn: str) -> None:
    write(tmp_path, 0, range(1, 5))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    write(tmp_path, 2, range(3, 7))
    assert [line["step"] for line in logged(tmp_path)] == [1, 2, 3, 4, 5, 6]
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.jsonl", "tensorboard"}


def test_metrics_drop_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}')
    write(tmp_path, 2, range(3, 4))
    assert [line["step"] for line in logged(tmp_path)] == [1, 3]


def test_resuming_hides_the_points_after_the_checkpoint_only(tmp_path: Path) -> None:
    """TensorBoard drops earlier points from the step of a START on."""
    write(tmp_path, 2, range(3, 4))
    starts = [e.step for e in events(tmp_path) if e.session_log.status == SessionLog.START]
    assert starts == [3]


def test_numbers_go_to_weights_and_biases_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a stand-in: what it would be told."""
    told: list[tuple] = []
    run = SimpleNamespace(
        log=lambda values, step: told.append((step, values)), finish=lambda: told.append(("end",))
    )
    wandb = ModuleType("wandb")
    wandb.__spec__ = ModuleSpec("wandb", None)
    monkeypatch.setattr(wandb, "init", lambda **fields: told.append(fields) or run, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    (tmp_path / "config.json").write_text('{"seed": 3}')
    log = MetricsLog(tmp_path, 0, 9, "project")
    log.write(1, {"loss": 2.0, "mfu": "unknown"})
    log.close()
    fields, *rest = told
    assert (fields["project"], fields["config"]) == ("project", {"seed": 3})
    assert (fields["name"], len(fields["id"])) == (str(tmp_path), 16)
    assert rest == [(1, {"loss": 2.0, "mfu": "unknown"}), ("end",)]


def test_wandb_without_its_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"watch\.wandb: found not installed"):
        MetricsLog(tmp_path, 0, 9, "project")
