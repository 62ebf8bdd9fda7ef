"""Load and faults: many clients of one server of nano, which is killed in between.

    python tests/system/load_serve.py --seconds 300 --clients 50

Each scan lies at another place of the scanner's frame, so that the boxes (mm) in an answer say
about which scan it is: a planted finding that is unique. Clients ask by path, upload and ask,
stream, cancel, send what is no request, and half uploads. After a third of the time the server is
killed (SIGKILL) and started again. Its memory is judged after a warm-up, in which programs are
compiled and caches fill: from the first to the last quarter of what is left. Prints p50 and p99 of
answers, and every failure; exit code 1 if there was any.
"""

import argparse
import base64
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.scan.volume import Volume

APART_MM = 2000.0
SCANS = 6
QUESTIONS = ("Where is the tumour in this CT?", "Is there a lesion in the liver?")
JUNK = (b"no scan", b"PK\x03\x04 no archive", b"\x1f\x8b no gzip", b"")
WEIGHTS = {"path": 50, "stream": 15, "upload": 12, "cancel": 8, "inline": 5, "bad": 6, "half": 4}
MOST_GROWTH, INTERVAL_S = 0.05, 0.5


@dataclass
class Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    answers: dict[tuple[int, str, bool], str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, text: str) -> None:
        """Note what must not happen."""
        with self.lock:
            self.failures.append(text)

    def answered(self, scan: int, text: str, uploaded: bool, metadata: dict[str, Any]) -> None:
        """Check an answer against the scan's place, and against its other answers."""
        boxes = [
            organ["box_mm"] for each in metadata["rounds"] for organ in each["organs"]
            if organ["box_mm"]
        ]  # fmt: skip
        if not all(abs(box[0] - scan * APART_MM) < APART_MM / 2 for box in boxes):
            self.fail(f"an answer about scan {scan} has boxes of another: {boxes[0]}")
        said = repr([each["text"] for each in metadata["rounds"]])
        with self.lock:
            self.counts["answers"] += 1
            self.counts["boxes"] += len(boxes)
            expected = self.answers.setdefault((scan, text, uploaded), said)
        if said != expected:
            self.fail(f"two answers to one question about scan {scan}: {said} and {expected}")


def make_scans(root: Path) -> None:
    """Small digital patients, each at a place of its own."""
    for number in range(SCANS):
        patient = make_patient(1 + number % 2)
        for name in ("ct", "labels", "lesion_map", "other_map", "beyond_map"):
            volume = getattr(patient, name)
            if volume is None:
                continue
            affine = volume.affine.copy()
            affine[0, 3] += number * APART_MM
            patient = replace(patient, **{name: Volume(volume.voxels, affine)})
        write_patient(patient, root / f"p{number}")


class Server:
    """The server as a process."""

    def __init__(self, root: Path, scratch: Path, port: int):
        self.port = port
        command = [sys.executable, "-m", "tumorchain_jax.cli.main", "serve", "--port", str(port)]
        command += ["--root", str(root), "--slots", "8", "--rounds", "2", "--keep", "30"]
        command += ["--waiting", "64", "--seconds", "120"]
        self.log = (scratch / "server.log").open("a")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        assert self.process.stdout is not None
        self.url = re.findall(r"http://[0-9.:]+", self.process.stdout.readline())[0]

    def resident(self) -> int:
        """Bytes of memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def body(file: dict[str, str], text: str, **fields: Any) -> dict[str, Any]:
    """A request."""
    content = [{"type": "text", "text": text}, {"type": "file", "file": file}]
    return {"model": "nano", "messages": [{"role": "user", "content": content}], **fields}


class Client(threading.Thread):
    """Does one thing after another until it is told to stop."""

    def __init__(self, seed: int, load: "Load"):
        super().__init__(daemon=True)
        self._rng, self._load, self._tally = random.Random(seed), load, load.tally

    def run(self) -> None:
        """Work."""
        with httpx2.Client(base_url=self._load.url, timeout=150, trust_env=False) as self._http:
            while not self._load.stop.is_set():
                kind = self._rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
                killed = self._load.kills
                try:
                    getattr(self, f"_{kind}")()
                    with self._tally.lock:
                        self._tally.counts[kind] += 1
                except (httpx2.TransportError, ConnectionError) as error:
                    if killed == self._load.kills and not self._load.down:
                        self._tally.fail(f"{kind}: {type(error).__name__} {error}")
                    time.sleep(0.2)

    def _draw(self) -> tuple[int, str, Path]:
        number = self._rng.randrange(SCANS)
        return number, self._rng.choice(QUESTIONS), self._load.root / f"p{number}"

    def _post(self, request: dict[str, Any]) -> httpx2.Response | None:
        """The reply; None if the server is busy, or has forgotten a file over a restart."""
        started = time.monotonic()
        killed = self._load.kills
        reply = self._http.post("/v1/chat/completions", json=request)
        if reply.status_code in (429, 503, 408):
            with self._tally.lock:
                self._tally.counts[f"status {reply.status_code}"] += 1
            time.sleep(self._rng.uniform(0.1, 1.0))
            return None
        if reply.status_code == 404 and killed != self._load.kills:
            return None
        if reply.status_code != 200:
            self._tally.fail(f"{reply.status_code}: {reply.text[:200]}")
            return None
        with self._tally.lock:
            self._tally.seconds.append(time.monotonic() - started)
        return reply

    def _path(self) -> None:
        number, text, _ = self._draw()
        metadata = {"mask": f"p{number}/labels.nii.gz"}
        reply = self._post(body({"path": f"p{number}/ct.nii.gz"}, text, metadata=metadata))
        if reply is not None:
            self._tally.answered(number, text, False, reply.json()["metadata"])

    def _stream(self) -> None:
        number, text, _ = self._draw()
        fields = {"metadata": {"mask": f"p{number}/labels.nii.gz"}, "stream": True}
        reply = self._post(body({"path": f"p{number}/ct.nii.gz"}, text, **fields))
        if reply is None:
            return
        last = [line for line in reply.text.split("\n\n") if '"metadata"' in line]
        if last:
            self._tally.answered(number, text, False, _json(last[-1])["metadata"])
        elif '"error"' not in reply.text:
            self._tally.fail(f"a stream has no end: {reply.text[-200:]}")

    def _send(self, path: Path, kind: str = "scan.nii.gz") -> str | None:
        files = {"file": (kind, path.read_bytes())}
        reply = self._http.post("/v1/files", files=files, data={"purpose": "user_data"})
        if reply.status_code == 429:
            return None
        if reply.status_code != 200:
            self._tally.fail(f"upload: {reply.status_code} {reply.text[:200]}")
            return None
        return reply.json()["id"]

    def _upload(self) -> None:
        number, text, folder = self._draw()
        killed = self._load.kills
        ids = [self._send(folder / name) for name in ("ct.nii.gz", "labels.nii.gz")]
        if all(ids) and killed == self._load.kills:
            reply = self._post(body({"file_id": ids[0]}, text, metadata={"mask": ids[1]}))
            if reply is not None:
                self._tally.answered(number, text, True, reply.json()["metadata"])
        for each in ids:
            if each and self._rng.random() < 0.7:  # what is left is deleted after --keep
                self._http.delete(f"/v1/files/{each}")

    def _inline(self) -> None:
        number, text, folder = self._draw()
        content = {"file_data": _base64(folder / "ct.nii.gz")}
        metadata = {"mask": f"p{number}/labels.nii.gz"}
        reply = self._post(body(content, text, metadata=metadata))
        if reply is not None:
            self._tally.answered(number, text, True, reply.json()["metadata"])

    def _cancel(self) -> None:
        number, text, _ = self._draw()
        fields = {"metadata": {"mask": f"p{number}/labels.nii.gz"}, "stream": True}
        request = body({"path": f"p{number}/ct.nii.gz"}, text, **fields)
        with self._http.stream("POST", "/v1/chat/completions", json=request) as response:
            if response.status_code == 200:
                next(response.iter_raw(), b"")

    def _bad(self) -> None:
        files = {"file": ("x.nii.gz", self._rng.choice(JUNK))}
        self._expect(self._http.post("/v1/files", files=files), {400, 413, 429})
        requests = [
            body({"path": "../secret"}, QUESTIONS[0]),
            body({"path": "p0/ct.nii.gz"}, "What is the capital of France?"),
            body({"file_id": "file-of-another"}, QUESTIONS[0]),
            {"model": "nano"},
        ]
        reply = self._http.post("/v1/chat/completions", json=self._rng.choice(requests))
        self._expect(reply, {400, 404})

    def _expect(self, reply: httpx2.Response, statuses: set[int]) -> None:
        if reply.status_code not in statuses | {503}:
            self._tally.fail(f"bad input: {reply.status_code} {reply.text[:200]}")

    def _half(self) -> None:
        host, port = self._load.url.removeprefix("http://").split(":")
        head = "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999\r\n"
        head += "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(head.encode() + bytes(50_000))


def _json(event: str) -> dict[str, Any]:
    return json.loads(event.removeprefix("data: "))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


class Load:
    """Clients, the server, and its memory over time."""

    def __init__(self, root: Path, scratch: Path):
        self.root, self._scratch = root, scratch
        self.tally, self.stop = Tally(), threading.Event()
        self.kills, self.down = 0, False
        self._server = Server(root, scratch, 0)
        self.url = self._server.url
        self.memory: list[list[int]] = [[]]

    def run(self, seconds: float, clients: int) -> None:
        """Put load on the server; kill it in the middle; end it."""
        threads = [Client(seed, self) for seed in range(clients)]
        for each in threads:
            each.start()
        self._watch(seconds / 3)
        self._kill()
        self._watch(seconds * 2 / 3)
        self.stop.set()
        for each in threads:
            each.join(180)
        if any(each.is_alive() for each in threads):
            self.tally.fail("a client waits for ever")
        self._server.process.send_signal(signal.SIGTERM)
        if self._server.process.wait(120):
            self.tally.fail(f"the server ended with {self._server.process.returncode}")
        left = [each.name for each in self._scratch.iterdir() if each.name != "server.log"]
        if left:
            self.tally.fail(f"files are left: {left}")

    def _watch(self, seconds: float) -> None:
        """Let the clients work, and note the server's memory."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.memory[-1].append(self._server.resident())
            time.sleep(INTERVAL_S)

    def _kill(self) -> None:
        self.down = True
        self._server.process.kill()
        self._server.process.wait()
        port = int(self.url.rpartition(":")[2])
        self._server = Server(self.root, self._scratch, port)
        self.kills += 1
        self.down = False
        self.memory.append([])
        folders = [*self._scratch.glob("tumorchain-serve-*")]
        if len(folders) != 1:
            self.tally.fail(f"uploads of the killed server are left: {folders}")

    def growth(self, warm_up: float) -> tuple[float, list[int]]:
        """How memory of the last server grew after a warm-up (s).

        Returns:
            its last quarter's median over its first quarter's, less one; all quarters' in MB, after
            the warm-up's highest.
        """
        last = self.memory[-1]
        start = min(int(warm_up / INTERVAL_S), len(last) - 4)
        quarters = [float(np.median(part)) for part in np.array_split(last[start:], 4)]
        megabytes = [round(each / 2**20) for each in (max(last[: start + 1]), *quarters)]
        return quarters[-1] / quarters[0] - 1, megabytes


def main(argv: list[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--warm-up", type=float, default=60.0, help="of the second server, in s")
    parser.add_argument("--no-memory", action="store_true", help="do not judge memory: too short")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root, scratch = Path(folder) / "root", Path(folder) / "scratch"
        scratch.mkdir()
        make_scans(root)
        load = Load(root, scratch)
        load.run(options.seconds, options.clients)
        tally, (growth, megabytes) = load.tally, load.growth(options.warm_up)
        errors = [x for x in (scratch / "server.log").read_text().splitlines() if "Traceback" in x]
    if growth > MOST_GROWTH and not options.no_memory:
        tally.fail(f"memory grew by {growth:.1%}")
    for each in errors[:5]:
        tally.fail(f"the server's log: {each[:500]}")
    p50, p99 = np.percentile(tally.seconds or [np.nan], [50, 99])
    print(f"{options.clients} clients, {options.seconds:.0f} s, 1 SIGKILL: {dict(tally.counts)}")
    print(
        f"answers: p50 {p50:.2f} s, p99 {p99:.2f} s; memory {growth:+.1%} after warm-up", end="; "
    )
    print("MB: warm-up at most {}, then by quarters {}, {}, {}, {}".format(*megabytes))
    for each in tally.failures[:20]:
        print(f"FAILED {each}")
    print(f"{len(tally.failures)} failures")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
