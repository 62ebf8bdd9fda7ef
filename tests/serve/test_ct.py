"""Questions about CTs over HTTP: two digital patients of different tumours, one server of nano."""

import base64
import io
import json
import os
import re
import stat
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx2
import numpy as np
import pytest
from ct_clients import WHERE, ask, by_path, get, upload

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.scan_file import check_scan_file
from tumorchain_jax.serve.ct.store import Store, Stored
from tumorchain_jax.serve.ct.upload import read_parts
from tumorchain_jax.serve.ct.view import scan_view
from tumorchain_jax.serve.refusal import Refusal

pytestmark = pytest.mark.program


@pytest.fixture
def url(ct_url: str) -> str:
    return ct_url


@pytest.fixture
def limits(served: SimpleNamespace) -> Limits:
    return served.desk.limits


def test_no_client_gets_the_answer_of_another(url: str) -> None:
    asked = [(1, WHERE), (2, WHERE), (2, "Is there a lesion in the liver?")]

    def answer(each: tuple[int, str]) -> list[str]:
        number, question = each
        reply = ask(url, text=question, **by_path(number))
        assert reply.status_code == 200, reply.text
        metadata = reply.json()["metadata"]
        assert metadata["scan"] == f"p{number}/ct.nii.gz"
        return [round_["text"] for round_ in metadata["rounds"]]

    # One after another; that a question alone has the analyzer's answer: inference/test_slots.py.
    alone = {each: answer(each) for each in asked}
    assert alone[1, WHERE] != alone[2, WHERE]
    with ThreadPoolExecutor(9) as threads:
        found = [*threads.map(answer, asked * 3)]
    assert found == [alone[each] for each in asked * 3]


def test_stream_has_each_token_then_the_rounds_and_the_answer(
    url: str, answer: dict[str, Any]
) -> None:
    whole = answer
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = ask(url, **by_path(1), **options).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    rounds = [delta["round"] for delta in deltas if delta.get("type") == "round"]
    assert rounds == [
        {"number": number, **each} for number, each in enumerate(whole["metadata"]["rounds"], 1)
    ]
    for each in rounds:
        tokens = [d for d in deltas if d.get("type") == "token" and d["number"] == each["number"]]
        assert "".join(token["reasoning_content"] for token in tokens) == each["text"]
        assert each["tokens"] - 3 <= len(tokens) <= each["tokens"]  # few are half a character
        assert deltas.index(tokens[-1]) < deltas.index({"type": "round", "round": each})
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["metadata"]["headline"] == content
    assert chunks[-1]["usage"] == whole["usage"]


def test_metadata_says_how_far_the_answer_goes(
    url: str, root: Path, answer: dict[str, Any]
) -> None:
    on_digital = answer["metadata"]
    assert on_digital["answered"] is True
    assert on_digital["confidence"]["value"] > 0.5
    assert on_digital["organs_looked_at"]
    assert str(root) not in json.dumps(on_digital)
    missing = ask(url, text="Is the left adrenal gland enlarged?", **by_path(1)).json()
    if not missing["metadata"]["answered"]:
        assert missing["choices"][0]["message"]["content"] == missing["metadata"]["reason"]


def test_upload_is_asked_about_and_deleted(url: str, served: SimpleNamespace, root: Path) -> None:
    content = (root / "p1" / "ct.nii.gz").read_bytes()
    labels = upload(url, (root / "p1" / "labels.nii.gz").read_bytes()).json()
    made = upload(url, content, "../../etc/a b.nii.gz").json()
    assert made["bytes"] == len(content)
    assert ".." not in made["filename"]
    reply = ask(url, {"file_id": made["id"]}, metadata={"mask": labels["id"]}).json()
    inline = {"file_data": "data:;base64," + base64.b64encode(content).decode()}
    before = len([*served.store.folder.iterdir()])
    same = ask(url, inline, metadata={"mask": labels["id"]}).json()
    assert reply["choices"] == same["choices"]
    assert len([*served.store.folder.iterdir()]) == before  # the one in the request is gone
    # An upload is of unknown origin, so a calibration on digital patients does not apply to it.
    assert reply["metadata"]["confidence"]["value"] is None
    # Its report is a page to be saved, which names no path of this machine.
    address = f"{url}/v1/reports/{reply['metadata']['report_id']}"
    page = get(address)
    assert page.headers["content-disposition"].startswith("attachment")
    assert Path(made["filename"]).name in page.text
    assert WHERE in page.text
    assert str(served.store.folder) not in page.text
    assert same["metadata"]["report_id"] is None
    for each in (made, labels):
        httpx2.delete(f"{url}/v1/files/{each['id']}", trust_env=False)
    assert ask(url, {"file_id": made["id"]}).status_code == 404
    assert get(address).status_code == 404
    assert not [*served.store.folder.iterdir()]


def test_reports_are_kept_of_as_many_scans_as_are_kept() -> None:
    """A report holds its image: those of evicted scans must not pile up."""
    cases = Cases(Mock(), replace(Limits(), scans=2))
    reports = [Mock() for _ in range(4)]
    made = [cases.keep(scan, each) for scan, each in zip("abac", reports, strict=True)]
    for gone in made[:2]:
        with pytest.raises(Refusal, match="no such report"):
            cases.report(gone)
    assert [cases.report(each) for each in made[2:]] == reports[2:]


def test_expired_upload_is_deleted(tmp_path: Path) -> None:
    store = Store(None, 0.05, 1 << 20)
    path = store.scratch()
    path.write_bytes(b"x")
    stored = store.add(path, "x")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    time.sleep(0.1)
    with pytest.raises(Refusal):
        store.get(stored.id)
    assert not path.exists()
    store.close()


@pytest.mark.parametrize(
    "path", ["../secret.nii", "out.nii", "/etc/passwd", "p1/../../secret.nii", "nothing", "a\0b"]
)
def test_paths_out_of_the_root_are_refused_alike(url: str, path: str) -> None:
    reply = ask(url, {"path": path})
    assert reply.status_code == 404
    assert reply.json()["error"]["message"] == "path: there is no such scan under the root"


def archive(names: list[str], content: bytes = b"x", link: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFLNK | 0o777) << 16 if link else 0
            file.writestr(info, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "found"),
    [
        (archive(["../up.dcm"]), 400, "leads out"),
        (archive(["/etc/x.dcm"]), 400, "leads out"),
        (archive(["a\\..\\..\\x.dcm"]), 400, "leads out"),
        (archive(["link"], b"/etc/passwd", link=True), 400, "link"),
        (archive(["bomb.dcm"], bytes(64 << 20)), 413, "unpacks"),
        (archive([f"{n}.dcm" for n in range(5001)]), 413, "files"),
        (b"PK\x03\x04 no archive", 400, "damaged"),
        (b"hello", 400, "neither"),
        (b"\x1f\x8b hello", 400, "neither"),
        (b"", 400, "neither"),
        (bytes(9 << 20), 413, "bytes"),
    ],
)
def test_uploads_that_are_no_sound_scan_leave_nothing(
    url: str, served: SimpleNamespace, content: bytes, status: int, found: str
) -> None:
    reply = upload(url, content)
    assert reply.status_code == status, reply.text
    assert found in reply.json()["error"]["message"]
    assert not [*served.store.folder.iterdir()]
    assert get(f"{url}/ready").status_code == 200


def test_scan_that_is_too_large_is_refused_by_its_header(root: Path, limits: Limits) -> None:
    path = root / "p1" / "ct.nii.gz"
    assert check_scan_file(path, limits) == ".nii.gz"
    for less in (replace(limits, voxels=1000), replace(limits, unpacked=1000)):
        with pytest.raises(Refusal) as error:
            check_scan_file(path, less)
        assert error.value.status == 413


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "empty"),
        (b"--b\r\n", "cut off"),
        (b"hello", "begin"),
        (b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\nabc", "cut off"),
        (b"--b\r\n" + b"x" * 5000 + b"\r\n\r\n\r\n--b--", "cut off"),
    ],
)
def test_multipart_bodies_that_are_cut_off_are_refused(
    tmp_path: Path, body: bytes, found: str
) -> None:
    path = tmp_path / "body"
    path.write_bytes(body)
    with pytest.raises(Refusal, match=found):
        read_parts(path, "multipart/form-data; boundary=b")
    with pytest.raises(Refusal):
        read_parts(path, "text/plain")


@pytest.mark.parametrize(
    ("fields", "status", "found"),
    [
        ({"text": ""}, 400, "no question"),
        ({"text": "tumour " * 400}, 400, "tokens"),
        ({"text": "tumour " * 800}, 400, "characters"),
        ({"text": "What is the capital of France?"}, 400, "abdominal CT"),
        ({"model": "gpt-5"}, 404, "only nano"),
        ({"max_rounds": 9}, 400, "max_rounds"),
        ({"temperature": 0.5}, 400, "temperature"),
        ({"tools": [{}]}, 400, "tools"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user", "content": "no scan"}]}, 400, "file part"),
        ({"file": {"file_id": "file-of-another"}}, 404, "no such file"),
        ({"file": {"file_id": "a", "path": "b"}}, 400, "one of"),
        ({"file": {"file_data": "???"}}, 400, "base64"),
        ({"metadata": {"mask": "p2/labels.nii.gz"}}, 400, "labels.nii.gz"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    url: str, fields: dict[str, Any], status: int, found: str
) -> None:
    reply = ask(url, **{**by_path(1), **fields})
    error = reply.json()["error"]
    assert reply.status_code == status, error
    assert found in error["message"]
    assert "\n" not in error["message"]


def test_page_asks_nothing_of_others_and_foreign_pages_get_nothing(url: str) -> None:
    page = get(f"{url}/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name in ("", "page.js", "answers.js", "viewer.js", "page.css", "viewer.css"):
        text = get(f"{url}/{name}").text
        assert "http" not in text.replace("httpx", "")
        assert "innerHTML" not in text
    foreign = get(f"{url}/v1/root", headers={"Origin": "http://evil.org"})
    assert foreign.status_code == 403
    assert get(f"{url}/v1/root", headers={"Host": "evil.org"}).status_code == 400
    assert get(f"{url}/v1/root", headers={"Origin": url}).status_code == 200


def test_view_has_the_scan_and_its_organs(
    url: str, root: Path, analyzer: Analyzer, limits: Limits
) -> None:
    assert get(f"{url}/v1/root").json()["scans"] == ["out.nii", "p1/ct.nii.gz", "p2/ct.nii.gz"]
    made = httpx2.post(f"{url}/v1/files", json={"path": "p1/ct.nii.gz"}, trust_env=False).json()
    served = get(f"{url}/v1/scans/{made['id']}").json()
    greys = get(f"{url}/v1/scans/{made['id']}/greys").content
    # With its label map, as the page has it from the segmenter.
    ready = Cases(analyzer, limits).get(
        *(Stored(n, root / "p1" / f"{n}.nii.gz", n, 0, 0.0, None) for n in ("ct", "labels"))
    )
    view = scan_view(ready)
    assert served["shape"] == [*view.greys.shape]
    assert greys == view.greys.tobytes()
    assert len(get(f"{url}/v1/scans/{made['id']}/labels").content) == len(greys)
    organs = view.info["organs"]
    assert {each["label"] for each in organs} == {*np.unique(view.labels).tolist()} - {0}
    for organ in organs:
        for axis, at in enumerate(organ["at"]):
            assert (view.labels.take(at, axis) == organ["label"]).any()
    # The matrix leads from millimetres to the voxels that the page draws.
    affine = np.linalg.inv(np.array(view.info["to_voxel"]))
    assert (affine[:3, :3] @ [1, 0, 0])[2] > 0  # superior
    assert (affine[:3, :3] @ [0, 0, 1])[0] < 0  # the patient's left


@pytest.mark.usefixtures("answer")
def test_numbers_are_there_and_name_no_scan(url: str) -> None:
    text = get(f"{url}/metrics").text
    assert 'tumorchain_answers_total{outcome="answered"}' in text
    assert "tumorchain_waiting 0.0" in text
    assert "p1" not in text
    health = get(f"{url}/health").json()
    assert (health["slots"], health["rounds"]) == (4, 2)
    assert health["compiled"]


def test_full_queue_and_late_answers(analyzer: Analyzer, root: Path, limits: Limits) -> None:
    """A desk that does not work yet: what comes is queued, refused, or late."""
    limits = replace(limits, waiting=2, answer_s=0.0)
    desk, store = Desk(analyzer, Cases(analyzer, limits), limits), Store(root, 60.0, 1 << 20)
    told: list[Any] = []
    file = store.in_root("p1/ct.nii.gz")
    for _ in range(2):
        desk.submit(file, None, WHERE, 0, None, told.append)
    with pytest.raises(Refusal) as full:
        desk.submit(file, None, WHERE, 0, None, told.append)
    assert full.value.status == 429
    assert full.value.retry_after_s >= 1
    desk.begin()
    deadline = time.monotonic() + 30
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [each.status for each in told] == [408, 408]
    desk.stop()
    with pytest.raises(Refusal) as closed:
        desk.submit(file, None, WHERE, 0, None, told.append)
    assert closed.value.status == 503
    store.close()


def test_closing_refuses_what_waits(analyzer: Analyzer, root: Path, limits: Limits) -> None:
    desk, store = Desk(analyzer, Cases(analyzer, limits), limits), Store(root, 60.0, 1 << 20)
    told: list[Any] = []
    desk.submit(store.in_root("p1/ct.nii.gz"), None, WHERE, 0, None, told.append)
    desk.close()
    assert [each.status for each in told] == [503]
    store.close()


def test_question_error_has_no_hint_of_the_command_line(analyzer: Analyzer, limits: Limits) -> None:
    desk = Desk(analyzer, Cases(analyzer, limits), limits)
    with pytest.raises(Refusal) as error:
        desk.check("What is the capital of France?")
    assert "--force" not in error.value.message
    with pytest.raises(InputError):
        analyzer.check_question("")


@pytest.mark.system(haste=True)
def test_terminated_server_refuses_what_waits_and_deletes_uploads(
    root: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tumorchain_jax.cli.main", "serve", "--port", "0"]
    command += ["--slots", "1", "--rounds", "1", "--root", str(root)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        url = re.findall(r"http://[0-9.:]+", process.stdout.readline())[0]
        made = upload(url, (root / "p1" / "ct.nii.gz").read_bytes()).json()
        assert [*tmp_path.glob("tumorchain-serve-*/uploads/*")]
        with ThreadPoolExecutor(1) as threads:
            # Without a label map the scan is segmented first, which takes seconds.
            reply = threads.submit(ask, url, {"file_id": made["id"]})
            while not reply.done() and get(f"{url}/health").json()["waiting"] == 0:
                time.sleep(0.02)
            process.terminate()
            assert reply.result().status_code == 503
        assert process.wait(60) == 0
    assert not [*tmp_path.glob("tumorchain-serve-*")]
