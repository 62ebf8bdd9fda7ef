"""DICOMweb against Orthanc where it is installed: a series in, and results back."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
from dicom_series import write_series

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
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.scan.volume import Volume

PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
ORTHANC = shutil.which("Orthanc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
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
    """URL of the DICOMweb service of an Orthanc that is empty."""
    if not ORTHANC or not PLUGIN.is_file():
        pytest.skip("Orthanc with its DICOMweb plugin is not installed")
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
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx2.get(f"{url}/system", timeout=5)
                break
            except httpx2.HTTPError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        yield f"{url}/dicom-web"
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


def _bytes(made: Any) -> bytes:
    buffer = BytesIO()
    made.save_as(buffer)
    return buffer.getvalue()


def _pixels(content: bytes) -> bytes:
    import pydicom

    return pydicom.dcmread(BytesIO(content)).PixelData
