"""The demo's example CT: only the right bytes are taken, and a phantom stands in without them."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tumorchain_jax import demo


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _archive(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "totalsegmentator-2.18.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_the_two_files_are_taken_by_hash(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {name: (shared_data / "ct-totalsegmentator" / name).read_bytes() for name in demo.SHA256}
    members = {f"totalsegmentator-2.18.0/tests/reference_files/{n}": c for n, c in real.items()}
    members[f"../../{demo.CT}"] = b"not this one"
    downloads = []

    def download(_: str, folder: Path, options: tuple[str, ...]) -> Path:
        downloads.append(folder)
        return _archive(folder, members)

    monkeypatch.setattr(demo, "download", download)
    for _ in range(2):
        ct, labels = demo.example_files()
        assert ct.read_bytes() == real[demo.CT]
        assert labels.read_bytes() == real[demo.LABELS]
    assert len(downloads) == 1
    patient, why = demo.demo_patient(0)
    assert why is None
    assert patient.lesions
    assert demo.truth(patient).split(" (")[0] in ("liver", "pancreas", "stomach", "colon")


def test_wrong_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"x/{name}": b"something else" for name in demo.SHA256}
    monkeypatch.setattr(demo, "download", lambda _, folder, options: _archive(folder, members))
    with pytest.raises(demo.NotAvailable, match="does not hold"):
        demo.example_files()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_without_the_archive_a_phantom_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", no_network)
    patient, why = demo.demo_patient(0)
    assert why is not None
    assert "no network" in why
    assert patient.lesions
    assert "digital patient" in patient.ct.source
