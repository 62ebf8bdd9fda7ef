"""The distribution's Chromium, driven through a pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Browser:
    """One page of a headless browser.

    Attributes:
        requested: addresses of all requests that the page made.
        problems: errors and refusals that the page's console shows.
    """

    def __init__(self, write: int, read: int):
        self._write, self._read, self._number = write, read, 0
        self._rest = b""
        self.requested: list[str] = []
        self.problems: list[str] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser has gone"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        found = json.loads(message)
        method, params = found.get("method"), found.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        return found

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the window's size, and the colours that its reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, code: str) -> Any:
        """Run JavaScript and return its value."""
        result = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, code: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(code):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.1)

    def give_file(self, selector: str, path: Path) -> None:
        """Choose a file in a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def drag_file(self, selector: str, path: Path) -> None:
        """Drag a file from outside over an element, as a hand does; `drop_file` lets it go."""
        self._drag(selector, path, "dragEnter", "dragOver")

    def drop_file(self, selector: str, path: Path) -> None:
        """Let go of a file that `drag_file` has brought."""
        self._drag(selector, path, "drop")

    def _drag(self, selector: str, path: Path, *kinds: str) -> None:
        box = self.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        for kind in kinds:
            self.call(
                "Input.dispatchDragEvent",
                type=kind,
                x=box["x"] + box["width"] / 2,
                y=box["y"] + box["height"] / 2,
                data={"items": [], "files": [str(path)], "dragOperationsMask": 1},
            )

    def key(self, name: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def open(self, path: Path) -> None:
        """Go to a page on the disk."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def keep_downloads(self, folder: Path) -> None:
        """Let the page download files into a folder."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page."""
        made = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def chromium(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser without a network beyond this machine."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()

    # Chromium reads from 3 and writes to 4.
    redirect = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    command = [
        "bash", "-c", redirect, program,
        "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
        f"--user-data-dir={profile}", "--no-first-run", "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_browser, from_browser),
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(from_us, to_us)
    finally:
        process.terminate()
        process.wait(20)
        os.close(from_us)
        os.close(to_us)
