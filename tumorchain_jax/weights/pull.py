"""Fetch published weights by their name in the catalogue."""

import json
import os
import shutil
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from tumorchain_jax.core.downloads import NotAvailable, cache_folder
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory, write_file
from tumorchain_jax.core.http_download import fetch, hash_file
from tumorchain_jax.weights.catalogue import CATALOGUE, RELEASE, Archive, Weights
from tumorchain_jax.weights.hub import HubFolder, hub_folder

MOST_BYTES = 4 * 2**30
HASHES = "sha256.json"
"""In the cache: the SHA-256 of each archive when it was first downloaded here."""


def totalsegmentator_weights() -> Path:
    """Return the folder in which TotalSegmentator keeps its weights (as its config.py)."""
    if path := os.environ.get("TOTALSEG_WEIGHTS_PATH"):
        return Path(path)
    home = os.environ.get("TOTALSEG_HOME_DIR") or Path.home() / ".totalsegmentator"
    return Path(home) / "nnunet" / "results"


def find(name: str) -> Weights:
    """Return the catalogue's entry of that name.

    Raises:
        InputError: there is none.
    """
    if name not in CATALOGUE:
        expected = ", ".join(CATALOGUE)
        raise InputError("command line", "NAME", repr(name), expected, "see `weights list`")
    return CATALOGUE[name]


def is_pulled(weights: Weights) -> bool:
    """Whether weights of TotalSegmentator are there; of the hub's the cache knows."""
    folder = totalsegmentator_weights()
    return bool(weights.archives) and all(
        (folder / archive.name).is_dir() for archive in weights.archives
    )


def pull(weights: Weights, accepted: bool, mirror: str = "") -> Path:
    """Fetch weights; what is there already is not fetched again.

    Args:
        accepted: the user accepts the licence.
        mirror: base URL to take TotalSegmentator's archives from instead of its release.

    Returns:
        the folder: TotalSegmentator's own, or a snapshot in the hub's cache.

    Raises:
        InputError: the licence is not accepted, or is another one now; the source cannot be
            reached; what came is not what it should be.
    """
    if not accepted:
        hint = f"read it at {weights.source}, then add --accept-licence"
        raise InputError(weights.name, "licence", weights.licence, "that you accept it", hint)
    if weights.repo:
        found = hub_folder(f"hf:{weights.repo}", weights.files)
        _check_licence(weights, found)
        return found.path
    folder = totalsegmentator_weights()
    folder.mkdir(parents=True, exist_ok=True)
    for archive in weights.archives:
        if not (folder / archive.name).is_dir():
            _pull_archive(archive, folder, (mirror or RELEASE).rstrip("/"))
    return folder


def _check_licence(weights: Weights, found: HubFolder) -> None:
    """Refuse weights under another licence than the one that was accepted."""
    stated = found.licence.lower()
    known = weights.licence.lower()
    # A card says `other` for a licence that has no short name.
    if stated and stated != "other" and stated.split("-")[0] not in known:
        hint = f"read {weights.source}; take it with `convert import -i hf:{weights.repo}`"
        raise InputError(weights.name, "licence", found.licence, weights.licence, hint)


def _pull_archive(archive: Archive, folder: Path, base: str) -> None:
    url, file = f"{base}/{archive.name}.zip", cache_folder() / "weights" / f"{archive.name}.zip"
    known = file.with_name(HASHES)
    hashes = json.loads(known.read_text()) if known.is_file() else {}
    earlier = hashes.get(archive.name)
    try:
        if file.is_file() and file.stat().st_size == archive.size:
            found = hash_file(file)  # brought by hand, or by a run that was stopped
            if earlier not in (None, found):
                raise NotAvailable(f"{file} is another file than the one first downloaded")
        else:
            found = fetch(url, file, archive.size, earlier)
    except NotAvailable as error:
        hint = f"fetch {url} by hand, put it at {file}, and run the same command again"
        raise InputError(archive.name, "download", str(error), "the archive", hint) from error
    write_file(known, json.dumps(hashes | {archive.name: found}, indent=1).encode())
    try:
        with atomic_directory(folder / archive.name) as part:
            _unpack(file, part, archive.name)
    except BadZipFile as error:
        file.unlink()
        hint = "run the same command again"
        raise InputError(file, "archive", f"{error}", "a whole zip archive", hint) from error
    file.unlink()


def _unpack(file: Path, part: Path, name: str) -> None:
    """Write the members below the folder `name`; no path leads out of it."""
    with ZipFile(file) as archive:
        members = [each for each in archive.infolist() if not each.is_dir()]
        if sum(each.file_size for each in members) > MOST_BYTES:
            expected = f"at most {MOST_BYTES} bytes"
            raise InputError(file, "archive", "too large a content", expected, "fetch it again")
        inside = [each for each in members if each.filename.startswith(f"{name}/")]
        if not inside:
            raise InputError(file, "archive", "other folders", name, "fetch it again")
        for member in inside:
            target = part / member.filename.removeprefix(f"{name}/")
            if not target.resolve().is_relative_to(part.resolve()):
                found = f"a path out of it: {member.filename}"
                raise InputError(file, "archive", found, "paths inside", "fetch it elsewhere")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out)
