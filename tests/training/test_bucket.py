"""Training with its working folder in an object store: gcsfs and TensorStore on a fake bucket."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BUCKET = "gs://bucket/runs/tiny"
TINY = [
    "--config.model.encoder.image=(32,48,48)",
    "--config.model.decoder.num_hidden_layers=1",
    "--config.data.phantoms=4",
    "--config.data.length=1024",
    "--config.batch_size=4",
    "--config.micro_batch_size=4",
    "--config.pretrain.patch_stage.steps=0",
    "--config.trainable=(('.*', True),)",
    "--config.steps=3",
    "--config.log_every=1",
    "--config.checkpoint.every=1",
]
# The process ends, as by kill -9, once the checkpoint of step 2 is written.
KILLED = """
import os, sys
from tumorchain_jax.cli.main import main
from tumorchain_jax.training.checkpoint import Checkpoints
save = Checkpoints.save
def save_and_die(self, step, *rest):
    save(self, step, *rest)
    if step == 2:
        self._manager.wait_until_finished()
        os._exit(9)
Checkpoints.save = save_and_die
sys.exit(main(sys.argv[1:]))
"""
RUN = "import sys; from tumorchain_jax.cli.main import main; sys.exit(main(sys.argv[1:]))"
READ = """
import sys
from tumorchain_jax.core.remote import as_path, local_copy
local_copy(as_path(sys.argv[1]))
"""

pytestmark = [
    pytest.mark.system(haste=True),
    pytest.mark.skipif(find_spec("gcsfs") is None, reason="needs gcsfs: tumorchain-jax[gcs]"),
]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of processes which take a fake bucket for Google's."""
    command = [sys.executable, str(TESTS / "fake_bucket.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            host = f"http://127.0.0.1:{int(server.stdout.readline())}"
            yield os.environ | {
                "STORAGE_EMULATOR_HOST": host,
                "TENSORSTORE_GCS_HTTP_URL": host,
                "GOOGLE_AUTH_TOKEN_FOR_TESTING": "any",
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                "PYTHONPATH": str(TESTS.parent),
            }
        finally:
            server.kill()


def run(code: str, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def losses(folder: Path) -> list[tuple[int, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(values["step"], values["loss"]) for values in map(json.loads, lines)]


def test_killed_training_resumes_from_a_bucket(tmp_path: Path, environment: dict[str, str]) -> None:
    train = ["train", "--config", "nano", *TINY, "--workdir"]
    code, told = run(RUN, [*train, str(tmp_path / "local")], environment)
    assert code == 0, told
    code, told = run(KILLED, [*train, BUCKET], environment)
    assert code == 9, told
    # Another machine resumes it: nothing is left here but the bucket.
    environment["XDG_CACHE_HOME"] = str(tmp_path / "elsewhere")
    code, told = run(RUN, [*train, BUCKET], environment)
    assert code == 0, told
    assert f"checkpoint: {BUCKET}/export" in told
    assert f"copying {BUCKET}/data/dataset.json" in told
    code, told = run(READ, [BUCKET], environment)
    assert code == 0, told
    copy = tmp_path / "elsewhere" / "tumorchain" / "remote" / "bucket" / "runs" / "tiny"
    assert losses(copy) == losses(tmp_path / "local")
    assert [step for step, _ in losses(copy)] == [1, 2, 3]
    ours, local = (folder / "export" for folder in (copy, tmp_path / "local"))
    assert {path.name for path in ours.iterdir()} == {path.name for path in local.iterdir()}
    for path in local.iterdir():
        assert (ours / path.name).read_bytes() == path.read_bytes(), path.name
    assert list((copy / "tensorboard").iterdir())
    code, told = run(RUN, ["preflight", *train[1:], BUCKET], environment)
    assert code == 0, told
    assert "an object store, for" in told
