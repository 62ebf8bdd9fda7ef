"""Questions about CTs over HTTP: two digital patients of different tumours, one server of nano."""

import base64
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
import uvicorn
from chromium import chromium

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.serve.ct.app import make_ct_app
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.scan_file import check_scan_file
from tumorchain_jax.serve.ct.store import Store, Stored
from tumorchain_jax.serve.ct.upload import read_parts
from tumorchain_jax.serve.ct.view import scan_view
from tumorchain_jax.serve.refusal import Refusal

pytestmark = pytest.mark.program
WHERE = "Where is the tumour in this CT?"
LIMITS = replace(Limits(), waiting=12, upload=8 << 20, inline=16 << 20, scans=3)


class InThread(uvicorn.Server):
    """A server in a thread."""

    def install_signal_handlers(self) -> None:
        """Signals are the main thread's."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two patients under a root; a secret beside it."""
    folder = tmp_path_factory.mktemp("scans")
    (folder / "secret.nii").write_text("not for clients")
    for seed in (1, 2):
        write_patient(make_patient(seed), folder / "root" / f"p{seed}")
    (folder / "root" / "out.nii").symlink_to(folder / "secret.nii")
    return folder / "root"


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return Analyzer.load(batch_size=4, max_rounds=3)


@pytest.fixture(scope="module")
def served(analyzer: Analyzer, root: Path) -> Iterator[SimpleNamespace]:
    desk, store = Desk(analyzer, Cases(analyzer, LIMITS), LIMITS), Store(root, 3600.0, 1 << 30)
    desk.start()
    config = uvicorn.Config(
        make_ct_app(desk, store, "nano", ""), port=0, log_level="error", lifespan="off"
    )
    server = InThread(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield SimpleNamespace(url=f"http://127.0.0.1:{port}", desk=desk, store=store)
    server.should_exit = True
    thread.join()
    desk.stop()
    store.close()
    assert not store.folder.exists()


@pytest.fixture
def url(served: SimpleNamespace) -> str:
    return served.url


def get(address: str, **options: Any) -> httpx2.Response:
    return httpx2.get(address, timeout=60, trust_env=False, **options)


def upload(url: str, content: bytes, name: str = "scan.nii.gz") -> httpx2.Response:
    files = {"file": (name, content)}
    data = {"purpose": "user_data"}
    return httpx2.post(f"{url}/v1/files", files=files, data=data, timeout=60, trust_env=False)


def ask(url: str, file: dict[str, str], text: str = WHERE, **fields: Any) -> httpx2.Response:
    content = [{"type": "text", "text": text}, {"type": "file", "file": file}]
    body = {"model": "nano", "messages": [{"role": "user", "content": content}], **fields}
    address = f"{url}/v1/chat/completions"
    return httpx2.post(address, json=body, timeout=120, trust_env=False)


def by_path(number: int) -> dict[str, Any]:
    """Fields that name a patient by path, with the label map."""
    mask = {"mask": f"p{number}/labels.nii.gz"}
    return {"file": {"path": f"p{number}/ct.nii.gz"}, "metadata": mask}


def test_no_client_gets_the_answer_of_another(url: str, analyzer: Analyzer, root: Path) -> None:
    alone, questions = {}, (WHERE, "Is there a lesion in the liver?")
    for number in (1, 2):
        folder = root / f"p{number}"
        case = analyzer.prepare(folder / "ct.nii.gz", folder / "labels.nii.gz")
        for question in questions:
            [report] = analyzer.batch([(case, question)])
            alone[number, question] = [each.text for each in report.rounds]
    assert alone[1, WHERE] != alone[2, WHERE]
    asked = [(n, q) for q in questions for n in (1, 2)] * 3

    def answer(each: tuple[int, str]) -> list[str]:
        number, question = each
        reply = ask(url, text=question, **by_path(number))
        assert reply.status_code == 200, reply.text
        metadata = reply.json()["metadata"]
        assert metadata["scan"] == f"p{number}/ct.nii.gz"
        return [round_["text"] for round_ in metadata["rounds"]]

    with ThreadPoolExecutor(len(asked)) as threads:
        found = [*threads.map(answer, asked)]
    assert found == [alone[each] for each in asked]


def test_stream_has_the_rounds_and_then_the_answer(url: str) -> None:
    whole = ask(url, **by_path(1)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = ask(url, **by_path(1), **options).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    rounds = [delta["round"] for delta in deltas if delta.get("type") == "round"]
    texts = [each["text"] for each in whole["metadata"]["rounds"]]
    assert [each["text"] for each in rounds] == texts
    assert [each["number"] for each in rounds] == [*range(1, len(texts) + 1)]
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["metadata"]["headline"] == content
    assert chunks[-1]["usage"] == whole["usage"]


def test_metadata_says_how_far_the_answer_goes(url: str, root: Path) -> None:
    on_digital = ask(url, **by_path(1)).json()["metadata"]
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
    for each in (made, labels):
        httpx2.delete(f"{url}/v1/files/{each['id']}", trust_env=False)
    assert ask(url, {"file_id": made["id"]}).status_code == 404
    assert not [*served.store.folder.iterdir()]


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


def test_scan_that_is_too_large_is_refused_by_its_header(root: Path) -> None:
    path = root / "p1" / "ct.nii.gz"
    assert check_scan_file(path, LIMITS) == ".nii.gz"
    for limits in (replace(LIMITS, voxels=1000), replace(LIMITS, unpacked=1000)):
        with pytest.raises(Refusal) as error:
            check_scan_file(path, limits)
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
    for name in ("", "page.js", "planes.js", "page.css"):
        text = get(f"{url}/{name}").text
        assert "http" not in text.replace("httpx", "")
        assert "innerHTML" not in text
    foreign = get(f"{url}/v1/root", headers={"Origin": "http://evil.org"})
    assert foreign.status_code == 403
    assert get(f"{url}/v1/root", headers={"Host": "evil.org"}).status_code == 400
    assert get(f"{url}/v1/root", headers={"Origin": url}).status_code == 200


def test_view_has_the_scan_and_its_organs(url: str, root: Path, analyzer: Analyzer) -> None:
    assert get(f"{url}/v1/root").json()["scans"] == ["out.nii", "p1/ct.nii.gz", "p2/ct.nii.gz"]
    made = httpx2.post(f"{url}/v1/files", json={"path": "p1/ct.nii.gz"}, trust_env=False).json()
    info = get(f"{url}/v1/scans/{made['id']}").json()
    size = int(np.prod(info["shape"]))
    greys = get(f"{url}/v1/scans/{made['id']}/greys").content
    labels = np.frombuffer(get(f"{url}/v1/scans/{made['id']}/labels").content, np.uint8)
    assert len(greys) == len(labels) == size
    labels = labels.reshape(info["shape"])
    assert {organ["label"] for organ in info["organs"]} == {*np.unique(labels).tolist()} - {0}
    for organ in info["organs"]:
        for axis, at in enumerate(organ["at"]):
            assert (labels.take(at, axis) == organ["label"]).any()
    # The matrix leads from millimetres to the voxels that the page draws.
    ready = Cases(analyzer, LIMITS).get(
        *(Stored(n, root / "p1" / f"{n}.nii.gz", n, 0, 0.0, None) for n in ("ct", "labels"))
    )
    view = scan_view(ready)
    affine = np.linalg.inv(np.array(view.info["to_voxel"]))
    assert (affine[:3, :3] @ [1, 0, 0])[2] > 0  # superior
    assert (affine[:3, :3] @ [0, 0, 1])[0] < 0  # the patient's left


def test_numbers_are_there_and_name_no_scan(url: str) -> None:
    ask(url, **by_path(1))
    text = get(f"{url}/metrics").text
    assert 'tumorchain_answers_total{outcome="answered"}' in text
    assert "tumorchain_waiting 0.0" in text
    assert "p1" not in text
    health = get(f"{url}/health").json()
    assert (health["slots"], health["rounds"]) == (4, 3)
    assert health["compiled"]


def test_full_queue_and_late_answers(analyzer: Analyzer, root: Path) -> None:
    """A desk that does not work yet: what comes is queued, refused, or late."""
    limits = replace(LIMITS, waiting=2, answer_s=0.0)
    desk, store = Desk(analyzer, Cases(analyzer, limits), limits), Store(root, 60.0, 1 << 20)
    told: list[Any] = []
    file = store.in_root("p1/ct.nii.gz")
    for _ in range(2):
        desk.submit(file, None, WHERE, 0, None, told.append)
    with pytest.raises(Refusal) as full:
        desk.submit(file, None, WHERE, 0, None, told.append)
    assert full.value.status == 429
    assert full.value.retry_after_s >= 1
    desk.start()
    deadline = time.monotonic() + 30
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [each.status for each in told] == [408, 408]
    desk.stop()
    with pytest.raises(Refusal) as closed:
        desk.submit(file, None, WHERE, 0, None, told.append)
    assert closed.value.status == 503
    store.close()


def test_closing_refuses_what_waits(analyzer: Analyzer, root: Path) -> None:
    desk, store = Desk(analyzer, Cases(analyzer, LIMITS), LIMITS), Store(root, 60.0, 1 << 20)
    told: list[Any] = []
    desk.submit(store.in_root("p1/ct.nii.gz"), None, WHERE, 0, None, told.append)
    desk.close()
    assert [each.status for each in told] == [503]
    store.close()


def test_question_error_has_no_hint_of_the_command_line(analyzer: Analyzer) -> None:
    desk = Desk(analyzer, Cases(analyzer, LIMITS), LIMITS)
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
        assert [*tmp_path.glob("tumorchain-serve-*/*")]
        with ThreadPoolExecutor(1) as threads:
            # Without a label map the scan is segmented first, which takes seconds.
            reply = threads.submit(ask, url, {"file_id": made["id"]})
            while not reply.done() and get(f"{url}/health").json()["waiting"] == 0:
                time.sleep(0.02)
            process.terminate()
            assert reply.result().status_code == 503
        assert process.wait(60) == 0
    assert not [*tmp_path.glob("tumorchain-serve-*")]


@pytest.mark.system(haste=True)
def test_page_in_a_browser(url: str, root: Path, tmp_path: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium here")
    with chromium(program, tmp_path / "profile") as page:
        page.size(1280, 900)
        page.call("Page.navigate", url=f"{url}/")
        page.wait("document.getElementById('root')?.options.length > 1")
        page.give_file("#file", root / "p1" / "ct.nii.gz")
        page.wait("!document.getElementById('send').disabled")
        assert page.run("document.querySelectorAll('#organs button').length") > 10
        page.run("document.getElementById('send').click()")
        page.wait("document.querySelectorAll('.answer').length === 1")
        assert page.run("document.querySelectorAll('.round').length") >= 2
        where = "document.getElementById('{}').getAttribute('aria-valuetext')"
        before = page.run(where.format("axial"))
        page.run("document.getElementById('axial').focus()")
        page.key("ArrowUp")
        assert page.run(where.format("axial")) != before
        page.run("document.querySelector('.round .text button').click()")
        assert page.run(where.format("axial")) == before  # where that organ is largest
        # The pictures are not empty, and the window changes them.
        grey = (
            "[...document.getElementById('axial').getContext('2d')"
            ".getImageData(0, 0, 500, 500).data].reduce((a, b) => a + b)"
        )
        soft = page.run(grey)
        page.run("document.querySelector('[data-window=lung]').click()")
        assert page.run(grey) > soft > 0
        for width in (390, 1280):
            page.size(width, 800, dark=width == 390)
            assert page.run("document.documentElement.scrollWidth") <= width
        assert page.problems == []
        assert all(each.startswith((f"{url}/", "blob:")) for each in page.requested)
