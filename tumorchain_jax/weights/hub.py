"""Folders of the Hugging Face Hub, through its own client: cached, resumed, checked by SHA-256.

`HF_ENDPOINT` names another server, `HF_HOME` another cache, `HF_HUB_OFFLINE=1` forbids the network,
as for every program that uses huggingface_hub.
"""

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.http_download import hash_file

PREFIX = "hf:"
ADDRESS = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
WEIGHTS = ("*.safetensors", "*.json", "*.txt", "*.jinja", "LICENSE*")
PICKLES = ("*.bin", "*.pth")


class HubFolder(NamedTuple):
    """A repository at one revision, on this machine.

    Attributes:
        path: of the snapshot in the hub's cache.
        revision: the commit.
        licence: as the repository's card states it; "" if it does not.
    """

    path: Path
    revision: str
    licence: str


def is_hub_address(text: str) -> bool:
    """Whether it is `hf:OWNER/NAME[@REVISION]`."""
    return text.startswith(PREFIX)


def hub_folder(address: str, patterns: Sequence[str] = ()) -> HubFolder:
    """Download a repository, or what is missing of it, and check what came.

    Args:
        address: `hf:OWNER/NAME`, with `@REVISION` for other than the newest.
        patterns: of the files to take; none: weights, configuration and tokenizer, pickled weights
            only where there are no others.

    Raises:
        InputError: the address is none; there is no such repository; the hub cannot be reached; a
            file's bytes are not those that the hub lists.
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    found = ADDRESS.fullmatch(address)
    if not found:
        expected, hint = "hf:OWNER/NAME or hf:OWNER/NAME@REVISION", "change it"
        raise InputError("command line", "-i", address, expected, hint)
    repo, revision = found[1], found[2]
    try:
        info = huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        names = [each.rfilename for each in info.siblings or []]
        taken = list(patterns or WEIGHTS)
        if not patterns and not fnmatch.filter(names, "*.safetensors"):
            taken += PICKLES
        path = Path(
            huggingface_hub.snapshot_download(repo, revision=info.sha, allow_patterns=taken)
        )
    except HfHubHTTPError as error:
        what = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        hint = "check the name and revision; of a gated one, log in with `hf auth login`"
        raise InputError(address, "repository", what, "one that can be read", hint) from error
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        raise _unreachable(address, repo, revision, patterns, error) from error
    for each in info.siblings or []:
        file = path / each.rfilename
        if each.lfs is not None and file.is_file() and hash_file(file) != each.lfs.sha256:
            file.resolve().unlink()
            found_, expected = "other bytes", f"SHA-256 {each.lfs.sha256}"
            raise InputError(file, "file", found_, expected, "download it again")
    card = info.card_data
    return HubFolder(path, str(info.sha), str((card and card.get("license")) or ""))


def _unreachable(
    address: str, repo: str, revision: str | None, patterns: Sequence[str], error: Exception
) -> InputError:
    lines = str(error).splitlines() or [type(error).__name__]
    include = "".join(f" --include '{each}'" for each in patterns)
    at = f" --revision {revision}" if revision else ""
    hint = (
        f"where there is a network run `hf download {repo}{at}{include} --local-dir FOLDER`, bring "
        "that folder here and give it with -i"
    )
    return InputError(address, "repository", f"no way to it ({lines[0]:.120})", "the hub", hint)
