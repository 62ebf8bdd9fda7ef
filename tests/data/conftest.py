"""Four digital patients as files, and `tumorchain prepare` on them."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.data import scan_shards
from tumorchain_jax.phantoms.patient import Patient, make_patient, write_patient
from tumorchain_jax.phantoms.records import patient_records

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
SEEDS = range(4)
CONFIG = f"""
import runpy
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

def get_config():
    config = runpy.run_path({str(NANO)!r})["get_config"]()
    with config.unlocked():
        config.model = TumorChainConfig(
            encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
            decoder=Qwen2Config(512, 16, 32, 1, 2, 1, 8, tie_word_embeddings=True),
            roi_slots=4,
        )
        config.data.phantoms, config.data.length, config.pretrain.patch_stage.steps = 0, 800, 0
        config.steps, config.batch_size, config.micro_batch_size = 1, 2, 2
    return config
"""


@pytest.fixture(scope="session")
def patients() -> dict[str, Patient]:
    return {f"phantom-{seed}": make_patient(seed) for seed in SEEDS}


@pytest.fixture(scope="session")
def write_records() -> Callable[..., None]:
    """Write the records of patients, with fields that are the same in each."""

    def write(path: Path, patients: dict[str, Patient], **changes: object) -> None:
        lines = []
        for name, patient in patients.items():
            for record in patient_records(patient, 0):
                values = json.loads(record.to_json()) | {"scan": name} | changes
                lines.append(json.dumps(values) + "\n")
        path.write_text("".join(lines))

    return write


@pytest.fixture(scope="session")
def written(
    patients: dict[str, Patient],
    write_records: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Their files, their records, and the configuration of a tiny model."""
    folder = tmp_path_factory.mktemp("written")
    for name, patient in patients.items():
        write_patient(patient, folder / "scans" / name)
    (folder / "config.py").write_text(CONFIG)
    write_records(folder / "records.jsonl", patients)
    return folder


@pytest.fixture
def source(written: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return shutil.copytree(written, tmp_path / "source")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, two shards."""
    monkeypatch.setattr(
        "tumorchain_jax.core.workers.local_workers", lambda count: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(scan_shards, "MOST_SHARDS", 2)


@pytest.fixture
def command(phantoms: Path) -> Callable[[Path, Path], list[str]]:
    """The command line that makes a data set of a source."""

    def words(source: Path, output: Path) -> list[str]:
        words = ["prepare", "-i", source / "scans", "-o", output, "--tokenizer", phantoms]
        words += ["--records", source / "records.jsonl", "--config", source / "config.py"]
        return [str(word) for word in words]

    return words


@pytest.fixture
def run(
    command: Callable[[Path, Path], list[str]],
    capsys: pytest.CaptureFixture[str],
    quick: None,
) -> Callable[..., dict[str, Any]]:
    """Run it in this process; return what it reports, and its stderr."""

    def prepare(source: Path, output: Path, *words: object) -> dict[str, Any]:
        code = main([*command(source, output), "--json", *map(str, words)])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out) | {"stderr": captured.err}

    return prepare


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], quick: None) -> Callable[[list[str], str], None]:
    """Check that a command line ends with exit code 2 and one line that says `message`."""

    def check(words: list[str], message: str) -> None:
        capsys.readouterr()
        assert main(words) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert message in captured.err

    return check
