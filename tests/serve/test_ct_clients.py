"""The server of CTs with clients that we did not write, keys, DICOM, and clients that misbehave."""

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
from ct_clients import ask, by_path, client_of, get, question, upload
from dicom_series import write_series
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI

from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.serve import connection

pytestmark = pytest.mark.program


@pytest.fixture
def openai_client(ct_url: str) -> Iterator[OpenAI]:
    with client_of(ct_url) as client:
        yield client


def test_openai_client_uploads_asks_and_streams(openai_client: OpenAI, root: Path) -> None:
    assert [model.id for model in openai_client.models.list()] == ["nano"]
    with (root / "p1" / "labels.nii.gz").open("rb") as content:
        mask = openai_client.files.create(file=content, purpose="user_data")
    with (root / "p1" / "ct.nii.gz").open("rb") as content:
        file = openai_client.files.create(file=content, purpose="user_data")
    assert openai_client.files.retrieve(file.id).filename == "ct.nii.gz"
    body = question({"file_id": file.id}) | {"metadata": {"mask": mask.id}}
    whole = openai_client.chat.completions.create(**body)
    assert whole.choices[0].finish_reason == "stop"
    with openai_client.chat.completions.create(**body, stream=True) as stream:
        chunks = [*stream]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    written = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert written == "".join(each["text"] for each in whole.metadata["rounds"])
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert len(deltas) > len(written.split())
    with pytest.raises(BadRequestError, match="abdominal"):
        openai_client.chat.completions.create(**question({"file_id": file.id}, "Capital of Peru?"))
    for each in (file, mask):
        assert openai_client.files.delete(each.id).deleted
    with pytest.raises(NotFoundError):
        openai_client.files.retrieve(file.id)


def test_key_is_asked_for_on_every_route_of_scans(served: SimpleNamespace, key: str) -> None:
    routes = ["/v1/models", "/v1/root", "/metrics", "/v1/files/x", "/v1/scans/x"]
    for route in [*routes, "/v1/scans/x/greys", "/v1/reports/x"]:
        for headers in ({}, {"Authorization": f"Bearer {key}x"}):
            assert get(served.locked + route, headers=headers).status_code == 401, route
        right = get(served.locked + route, headers={"Authorization": f"Bearer {key}"})
        assert right.status_code in (200, 404), route
    assert upload(served.locked, b"x").status_code == 401
    assert ask(served.locked, **by_path(1)).status_code == 401
    assert httpx2.delete(f"{served.locked}/v1/files/x", trust_env=False).status_code == 401
    for route in ("/health", "/ready", "/"):
        assert get(served.locked + route).status_code == 200
    body = question(**by_path(1))
    with client_of(served.locked, key) as client:
        assert client.chat.completions.create(**body).choices
    with client_of(served.locked, "another key") as client, pytest.raises(AuthenticationError):
        client.models.list()


def test_zip_of_a_series_has_the_answer_of_its_nifti_file(
    ct_url: str, root: Path, answer: dict[str, Any], tmp_path: Path
) -> None:
    write_series(read_ct(root / "p1" / "ct.nii.gz"), tmp_path / "series")
    archive = Path(shutil.make_archive(str(tmp_path / "series"), "zip", tmp_path, "series"))
    labels = upload(ct_url, (root / "p1" / "labels.nii.gz").read_bytes()).json()["id"]
    made = upload(ct_url, archive.read_bytes(), "series.zip")
    assert made.status_code == 200, made.text
    file = made.json()["id"]
    reply = ask(ct_url, {"file_id": file}, metadata={"mask": labels})
    assert reply.status_code == 200, reply.text
    # The slices' places are rounded to 1e-6 mm.
    found = [reply.json()["metadata"]["rounds"], answer["metadata"]["rounds"]]
    boxes = [[o["box_mm"] for each in rounds for o in each["organs"]] for rounds in found]
    np.testing.assert_allclose(*boxes, atol=1e-3)
    assert len({tuple(each["text"] for each in rounds) for rounds in found}) == 1
    for each in (file, labels):
        httpx2.delete(f"{ct_url}/v1/files/{each}", trust_env=False)


def test_idle_and_slow_connections_are_closed_and_others_served(
    ct_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.4)
    connection.allow_connections()
    host, port = ct_url.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
    slow = socket.create_connection((host, int(port)))
    slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
    assert get(f"{ct_url}/health").status_code == 200
    end = time.monotonic() + 20
    closed = 0
    try:
        slow.settimeout(20)
        slow.sendall(b"a")
        assert slow.recv(1) == b""  # closed, though letters came
    except ConnectionError:
        pass
    for each in idle:
        each.settimeout(max(0.1, end - time.monotonic()))
        try:
            closed += each.recv(1) == b""
        except ConnectionError:
            closed += 1
        each.close()
    slow.close()
    assert closed == 1000
    assert get(f"{ct_url}/health").status_code == 200


def test_half_uploads_and_vanished_clients_leave_nothing(
    ct_url: str, served: SimpleNamespace
) -> None:
    host, port = ct_url.removeprefix("http://").split(":")
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
    )
    for _ in range(5):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + b"x" * 5000)
    with httpx2.stream(
        "POST",
        f"{ct_url}/v1/chat/completions",
        json=question(**by_path(2), stream=True),
        trust_env=False,
    ) as response:
        next(response.iter_raw())
    end = time.monotonic() + 20
    while [*served.store.folder.iterdir()] or served.desk.running:
        assert time.monotonic() < end
        time.sleep(0.05)
