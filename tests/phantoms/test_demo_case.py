"""The demo's example CT: only the right bytes are taken, and a phantom stands in without them."""

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.inference.record import TOY
from tumorchain_jax.phantoms import demo_case


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


def test_two_files_are_taken_by_hash(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {
        name: (shared_data / "ct-totalsegmentator" / name).read_bytes() for name in demo_case.SHA256
    }
    members = {f"totalsegmentator-2.18.0/tests/reference_files/{n}": c for n, c in real.items()}
    members[f"../../{demo_case.CT}"] = b"not this one"
    downloads = []

    def download(_: str, folder: Path, options: tuple[str, ...]) -> Path:
        downloads.append(folder)
        return _archive(folder, members)

    monkeypatch.setattr(demo_case, "download", download)
    for _ in range(2):
        ct, labels = demo_case.example_files()
        assert ct.read_bytes() == real[demo_case.CT]
        assert labels.read_bytes() == real[demo_case.LABELS]
    assert len(downloads) == 1
    patient = demo_case.ct_patient(0)
    assert patient.lesions
    assert demo_case.truth(patient).split(" (")[0] in ("liver", "pancreas", "stomach", "colon")


def test_wrong_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"x/{name}": b"something else" for name in demo_case.SHA256}
    monkeypatch.setattr(demo_case, "download", lambda _, folder, options: _archive(folder, members))
    with pytest.raises(demo_case.NotAvailable, match="does not hold"):
        demo_case.example_files()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fail)


@pytest.mark.usefixtures("no_network")
def test_without_a_network_there_is_the_phantom_alone() -> None:
    with pytest.raises(demo_case.NotAvailable, match="no network"):
        demo_case.ct_patient(0)
    patient = demo_case.phantom_patient(0)
    assert patient.lesions
    assert "digital patient" in patient.ct.source


@pytest.mark.program
@pytest.mark.usefixtures("no_network")
def test_demo_runs_from_the_scan_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path / "out"), "--json"]) == 0
    printed = capsys.readouterr()
    (record,) = json.loads(printed.out)
    assert "phantom: segmenting the organs: " in printed.err
    html = (tmp_path / "out" / "phantom" / "report.html").read_text("utf-8")
    assert ">true lesion</span>" in html
    assert not (tmp_path / "out" / "ct").exists()
    assert record["masks"]["kind"] == "predicted"
    assert record["warnings"][0] == TOY
    assert "nano segmenter" in record["warnings"][1]
    assert record["organs"]["liver"]["volume_ml"] > 100
    assert record["truth"] != "no lesion"
    outcomes = {organ["outcome"] for each in record["rounds"] for organ in each["organs"]}
    assert "looked_at" in outcomes
