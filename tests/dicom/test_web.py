"""DICOMweb against Orthanc where it is installed: a series in, and results back."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pydicom
import pytest
from dicom_series import PATIENT, thinned, write_series
from tls_relay import make_certificate, tls_relay

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.dicom.device import Device
from tumorchain_jax.dicom.segmentation import segmentation
from tumorchain_jax.dicom.source import read_source
from tumorchain_jax.dicom.web import (
    WebSeries,
    fetch_series,
    is_web_address,
    parse_address,
    store,
    unencrypted,
)
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.scan.volume import Volume

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
ORTHANC = shutil.which("Orthanc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
OPENSSL = shutil.which("openssl")
SERIES = "https://pacs/dicom-web/studies/1.2/series/3.4"


@pytest.mark.parametrize("text", [SERIES, SERIES.replace("https", "dicomweb"), f"{SERIES}/"])
def test_address_of_a_series(text: str) -> None:
    assert is_web_address(text)
    found = parse_address(text)
    assert found == WebSeries("https://pacs/dicom-web", "1.2", "3.4")
    assert str(found) == SERIES
    assert parse_address("https://pacs/dicom-web/", "3.4").study == ""


@pytest.mark.parametrize(
    ("text", "series"),
    [
        ("https://pacs/dicom-web", ""),
        ("https://pacs/studies/1.2/series/3.4", "5"),
        ("https://pacs/studies/../series/3", ""),
        ("https://", "1.2"),
        ("https://pacs", "1/../2"),
    ],
)
def test_address_that_names_no_series_is_refused(text: str, series: str) -> None:
    with pytest.raises(InputError):
        parse_address(text, series)


def test_plain_http_is_warned_of_but_on_this_machine() -> None:
    assert "unencrypted to pacs" in unencrypted("http://pacs/dicom-web")
    assert not unencrypted("https://pacs/dicom-web")
    assert not unencrypted("http://127.0.0.1:8042/dicom-web")
    assert not is_web_address("folder/ct.nii.gz")


def test_server_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"http://127.0.0.1:9/.*: server: found"):
        fetch_series(WebSeries("http://127.0.0.1:9/x", "1.2", "3.4"), tmp_path)


@pytest.fixture(scope="module")
def orthanc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the DICOMweb service of an Orthanc that is empty, over TLS, which needs a password."""
    if not (ORTHANC and OPENSSL and PLUGIN.is_file()):
        pytest.skip("Orthanc with its DICOMweb plugin, or openssl, is not installed")
    folder = tmp_path_factory.mktemp("orthanc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "StorageDirectory": str(folder / "db"),
        "IndexDirectory": str(folder / "db"),
        "HttpPort": port,
        "DicomServerEnabled": False,
        "RemoteAccessAllowed": False,
        "AuthenticationEnabled": True,
        "RegisteredUsers": {"reader": "secret"},
        "Plugins": [str(PLUGIN)],
        "DicomWeb": {"Enable": True, "Root": "/dicom-web/"},
    }
    (folder / "orthanc.json").write_text(json.dumps(settings))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [ORTHANC, str(folder / "orthanc.json")], stdout=log, stderr=log, cwd=folder
        )
    certificate = make_certificate(OPENSSL, folder)
    try:
        for _ in range(300):
            try:
                httpx2.get(f"http://127.0.0.1:{port}/system", timeout=5)
                break
            except httpx2.HTTPError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        # Orthanc's own TLS crashes in Debian 12's build.
        with tls_relay(certificate, port) as secure, pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificate))
            yield f"https://127.0.0.1:{secure}/dicom-web"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    ct = Volume(rng.integers(-1000, 1000, (12, 10, 9)).astype(np.float32), np.diag([1.0, 1, 2, 1]))
    folder = write_series(ct, tmp_path_factory.mktemp("web") / "series")
    return SimpleNamespace(folder=folder, source=read_source(folder), ct=read_ct(folder))


@pytest.mark.system(haste=True)
def test_series_comes_back_from_orthanc_and_results_go_there(
    orthanc: str,
    series: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = series.source.first
    with pytest.raises(InputError, match="401"):
        store(orthanc, [b"x"])
    monkeypatch.setenv("DICOMWEB_AUTH", "reader:secret")
    files = [path.read_bytes() for path in series.folder.iterdir()]
    assert store(orthanc, files) == 9
    wanted = parse_address(orthanc, str(first.SeriesInstanceUID))
    found = fetch_series(wanted, tmp_path)
    assert found.study == first.StudyInstanceUID
    again = read_ct(tmp_path)
    np.testing.assert_array_equal(again.voxels, series.ct.voxels)
    np.testing.assert_allclose(again.affine, series.ct.affine)

    labels = Volume((series.ct.voxels > 0).astype(np.uint8) * 5, series.ct.affine)
    seg = segmentation(read_source(tmp_path), labels, {5: "liver"}, Device("a model", "ab" * 32))
    assert store(orthanc, [_bytes(seg)]) == 1
    (tmp_path / "back").mkdir()
    made = WebSeries(orthanc, str(first.StudyInstanceUID), str(seg.SeriesInstanceUID))
    fetch_series(made, tmp_path / "back")
    [back] = (tmp_path / "back").iterdir()
    assert back.read_bytes()[128:132] == b"DICM"
    assert _pixels(back.read_bytes()) == _pixels(_bytes(seg))

    with pytest.raises(InputError, match="0 studies"):
        fetch_series(parse_address(orthanc, "1.2.3"), tmp_path)
    with pytest.raises(InputError, match=r"STOW-RS|server"):
        store(orthanc, [b"no DICOM object"])


@pytest.mark.system(haste=True)
def test_command_stores_its_results_beside_the_series_that_it_fetched(
    orthanc: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_series(thinned(make_patient(2).ct), tmp_path / "series")
    first = read_source(folder).first
    study, series = str(first.StudyInstanceUID), str(first.SeriesInstanceUID)
    address = orthanc.replace("https:", "dicomweb:")
    out = tmp_path / "report"
    words = ["analyze", "-i", f"{address}/studies/{study}/series/{series}", "-o", str(out)]
    words += ["-q", "Is the liver normal?", "--dicom", "--stow"]
    assert main(words) == 2
    refused = capsys.readouterr().err
    assert "401" in refused
    assert refused.count("\n") == 1
    assert not out.exists()

    monkeypatch.setenv("DICOMWEB_AUTH", "reader:secret")
    store(orthanc, [path.read_bytes() for path in folder.iterdir()])
    assert main(words) == 0
    made = {path.name: pydicom.dcmread(path) for path in out.glob("*.dcm")}
    assert made.keys() >= {"segmentation.dcm", "report.dcm", "key-image-1.dcm"}
    assert f"stored {len(made)} objects at {orthanc}" in capsys.readouterr().out
    assert not [*scratch.iterdir()]  # what was fetched

    # The server is asked by Orthanc's own interface, without our client.
    url = orthanc.removesuffix("dicom-web")
    with httpx2.Client(base_url=url, auth=("reader", "secret")) as http:
        found = [http.get(f"instances/{each}/file") for each in http.get("instances").json()]
    objects = [pydicom.dcmread(BytesIO(each.content)) for each in found]
    kept = {each.SOPInstanceUID: each for each in objects}
    for ours in made.values():
        theirs = kept[ours.SOPInstanceUID]
        assert theirs == ours
        assert {k: theirs[k].value for k in PATIENT} == PATIENT
        assert (theirs.StudyInstanceUID, theirs.AccessionNumber) == (study, "A-1")
    slices = {uid for uid, each in kept.items() if each.SeriesInstanceUID == series}
    assert len(slices) == len([*folder.iterdir()])
    seg, report = made["segmentation.dcm"], made["report.dcm"]
    assert seg.FrameOfReferenceUID == first.FrameOfReferenceUID
    [of_series] = seg.ReferencedSeriesSequence
    assert of_series.SeriesInstanceUID == series
    referenced = {each.ReferencedSOPInstanceUID for each in of_series.ReferencedInstanceSequence}
    assert referenced
    assert referenced <= slices
    texts = {each.value for each in report.iterall() if each.keyword == "TextValue"}
    assert "Question: Is the liver normal?" in texts
    assert report.VerificationFlag == "UNVERIFIED"


def _bytes(made: Any) -> bytes:
    buffer = BytesIO()
    made.save_as(buffer)
    return buffer.getvalue()


def _pixels(content: bytes) -> bytes:
    return pydicom.dcmread(BytesIO(content)).PixelData
