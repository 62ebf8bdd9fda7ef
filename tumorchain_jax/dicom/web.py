"""DICOMweb: fetch one series (QIDO-RS, WADO-RS) and store results (STOW-RS).

    dicomweb://HOST[:PORT]/PATH/studies/STUDY/series/SERIES   over TLS
    https://HOST/PATH/studies/STUDY/series/SERIES             the same; http:// without TLS
    https://HOST/PATH                                         with the series' UID beside it

`DICOMWEB_TOKEN` (a bearer token) or `DICOMWEB_AUTH` (user:password) in the environment is sent
along.
"""

import ipaddress
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.progress import progress

SCHEMES = {"dicomweb": "https", "https": "https", "http": "http"}
ADDRESS = re.compile(r"(?P<base>.+?)(?:/studies/(?P<study>[^/]+)/series/(?P<series>[^/]+))?/*")
UID = re.compile(r"(?=.{1,64}\Z)[0-9]+(\.[0-9]+)*")
TIMEOUT = httpx2.Timeout(30.0, read=120.0)
MOST_BYTES, MOST_FILES = 4 * 2**30, 10_000
DICOM = "application/dicom"
STUDY, SERIES, INSTANCE = "0020000D", "0020000E", "00080018"
FAILED, REASON = "00081198", "00081197"
PLAIN = "patient data travels unencrypted to {}: use https where you can"


@dataclass(frozen=True)
class WebSeries:
    """A series on a DICOMweb server.

    Attributes:
        base: URL of the service, up to `/studies`.
        study: its UID; "" if only the series' is known.
        series: its UID.
    """

    base: str
    study: str
    series: str

    def __str__(self) -> str:
        if not self.study:
            return f"{self.base} series {self.series}"
        return f"{self.base}/studies/{self.study}/series/{self.series}"


def is_web_address(text: str) -> bool:
    """Whether it is the address of a DICOMweb service or series."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def parse_address(text: str, series: str = "") -> WebSeries:
    """Parse an address; see the module.

    Args:
        series: UID of the series, for the address of a service.

    Raises:
        InputError: the address has no host, or it is not clear which series is meant.
    """
    scheme, _, rest = text.partition("://")
    url = f"{SCHEMES[scheme]}://{rest}"
    found = ADDRESS.fullmatch(url)
    assert found is not None
    named = found["series"] or series
    if not urlsplit(url).hostname or not named or (found["series"] and series):
        expected = "URL/studies/STUDY/series/SERIES, or a URL and --series UID"
        raise InputError("-i", "address", text, expected, "change it")
    for uid in filter(None, (found["study"], named)):
        if not UID.fullmatch(uid):
            raise InputError("-i", "UID", repr(uid)[:80], "numbers and dots", "change it")
    return WebSeries(found["base"].rstrip("/"), found["study"] or "", named)


def unencrypted(base: str) -> str:
    """Return a warning if what is sent to a service could be read on the way; else ""."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    return "" if parts.scheme == "https" or near else PLAIN.format(host)


def fetch_series(wanted: WebSeries, folder: Path) -> WebSeries:
    """Write the instances of a series into a folder, under names of our own.

    Returns:
        the series with its study.

    Raises:
        InputError: the server cannot be reached or refuses, has no such series, or sends something
            else or too much.
    """
    with _client() as client:
        wanted = _with_study(client, wanted)
        found = _json(client, f"{wanted}/instances")
        uids = [_value(each, INSTANCE) for each in found]
        if not 0 < len(uids) <= MOST_FILES or not all(map(UID.fullmatch, uids)):
            counted, expected = f"{len(uids)} instances", f"1 to {MOST_FILES}"
            raise InputError(wanted, "series", counted, expected, "check the UID")
        total = 0
        for number, uid in enumerate(progress(uids, len(uids), "download", "slices")):
            content = _instance(client, f"{wanted}/instances/{uid}")
            total += len(content)
            if total > MOST_BYTES:
                expected = f"at most {MOST_BYTES} bytes"
                raise InputError(wanted, "series", "more", expected, "fetch it by other means")
            (folder / f"{number:05d}.dcm").write_bytes(content)
    return wanted


def store(base: str, objects: Iterable[bytes]) -> int:
    """Store DICOM objects (STOW-RS); returns how many.

    Raises:
        InputError: the server cannot be reached, or did not take all of them.
    """
    files = list(objects)
    boundary = secrets.token_hex(16)
    start = f"--{boundary}\r\nContent-Type: {DICOM}\r\n\r\n".encode()
    body = b"".join(start + content + b"\r\n" for content in files)
    headers = {
        "Content-Type": f'multipart/related; type="{DICOM}"; boundary={boundary}',
        "Accept": "application/dicom+json",
    }
    with _client() as client:
        reply = _send(
            client,
            "POST",
            f"{base}/studies",
            headers=headers,
            content=body + f"--{boundary}--\r\n".encode(),
        )
    answer = reply.json() if reply.content else {}
    failed = (answer[0] if isinstance(answer, list) else answer).get(FAILED, {}).get("Value", [])
    if failed:
        reasons = ", ".join(str((each.get(REASON) or {}).get("Value", "?")) for each in failed)
        found, expected = f"{len(failed)} of {len(files)} refused ({reasons})", "all stored"
        raise InputError(base, "STOW-RS", found, expected, "see the server's log")
    return len(files)


def _client() -> httpx2.Client:
    headers, auth = {}, None
    if token := os.environ.get("DICOMWEB_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    elif user := os.environ.get("DICOMWEB_AUTH"):
        name, _, password = user.partition(":")
        auth = httpx2.BasicAuth(name, password)
    # Redirects are not followed: they would carry patient data, or the token, elsewhere.
    return httpx2.Client(headers=headers, auth=auth, timeout=TIMEOUT, follow_redirects=False)


def _with_study(client: httpx2.Client, wanted: WebSeries) -> WebSeries:
    """Ask for the study of a series of which only its own UID is known."""
    if wanted.study:
        return wanted
    found = _json(client, f"{wanted.base}/series", {"SeriesInstanceUID": wanted.series})
    studies = {_value(each, STUDY) for each in found if _value(each, SERIES) == wanted.series}
    if len(studies) != 1:
        expected = "one study that has it"
        raise InputError(wanted, "series", f"{len(studies)} studies", expected, "check the UID")
    [study] = studies
    if not UID.fullmatch(study):
        raise InputError(wanted, "study", repr(study)[:80], "a UID", "ask its administrator")
    return WebSeries(wanted.base, study, wanted.series)


def _json(client: httpx2.Client, url: str, query: dict[str, str] | None = None) -> list[Any]:
    headers = {"Accept": "application/dicom+json"}
    reply = _send(client, "GET", url, headers=headers, params=query)
    try:
        found = reply.json() if reply.content else []
    except ValueError as error:
        raise InputError(url, "reply", "no JSON", "DICOM JSON", "check the URL") from error
    if not isinstance(found, list):
        raise InputError(url, "reply", type(found).__name__, "a list", "check the URL")
    return found


def _value(data: Any, tag: str) -> str:
    """The first value of an element in DICOM JSON; "" for none."""
    values = (data.get(tag) or {}).get("Value") if isinstance(data, dict) else None
    return str(values[0]) if values else ""


def _instance(client: httpx2.Client, url: str) -> bytes:
    """Fetch one instance in the encoding in which the server has it."""
    headers = {"Accept": f'multipart/related; type="{DICOM}"; transfer-syntax=*'}
    reply = _send(client, "GET", url, headers=headers)
    kind = Message()
    kind["Content-Type"] = reply.headers.get("content-type", "")
    if kind.get_content_type() == DICOM:
        return reply.content
    boundary = kind.get_param("boundary")
    if kind.get_content_type() != "multipart/related" or not isinstance(boundary, str):
        found = kind.get_content_type()
        raise InputError(url, "reply", found, f"multipart/related of {DICOM}", "check the URL")
    parts = reply.content.split(b"--" + boundary.encode())
    # What stands before the first boundary and after the last is no part.
    _, separator, content = parts[1].partition(b"\r\n\r\n") if len(parts) > 2 else (b"", b"", b"")
    if not separator:
        raise InputError(url, "reply", "no part", "one DICOM object", "check the URL")
    return content.removesuffix(b"\r\n")


def _send(client: httpx2.Client, method: str, url: str, **more: Any) -> httpx2.Response:
    try:
        reply = client.request(method, url, **more)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = str(error) or type(error).__name__
        hint = "check the address and the network"
        raise InputError(url, "server", why, "an answer", hint) from error
    if not reply.is_success:
        found = f"{reply.status_code} {reply.reason_phrase}"
        hint = "check the address; DICOMWEB_TOKEN or DICOMWEB_AUTH holds credentials"
        raise InputError(url, "server", found, "success", hint)
    return reply
