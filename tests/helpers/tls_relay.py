"""TLS in front of a server that has none, as a hospital's proxy puts it there."""

import asyncio
import queue
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_certificate(openssl: str, folder: Path) -> Path:
    """Write a key and its certificate for 127.0.0.1 into one file, which clients may trust."""
    key, certificate, both = (folder / name for name in ("key.pem", "only.pem", "both.pem"))
    words = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return both


@contextmanager
def tls_relay(certificate: Path, port: int) -> Iterator[int]:
    """Pass what comes over TLS on to a port of this machine; gives the relay's own port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))

    started: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        started.put((asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]))
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    loop, stop, own_port = started.get(timeout=30)
    try:
        yield own_port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    writer.close()
