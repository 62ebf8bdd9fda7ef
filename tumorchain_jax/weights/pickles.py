"""PyTorch's pickles, opened in a process of their own that cannot run what is in them.

`torch.load(weights_only=True)` builds tensors and plain containers alone and refuses all else. It
runs in a child with a limit on its memory, which leaves safetensors behind. torch is an optional
extra: without it pickles are refused.

A checkpoint of nnU-Net also holds the log of its training, in numpy's scalars. Numbers are made of
none of these: what the pickle names `numpy.dtype` and `scalar` is, in the child, a class that does
nothing. The log is left behind, and a few words about the weights come along as JSON.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.weights.tensor_files import Tensor, read_file

SUFFIXES = (".bin", ".pth", ".pt")
NO_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state|random_states).*")
"""Files that transformers' Trainer writes beside the weights."""
ROOM = 8 * 2**30
"""Bytes of address space for torch itself, beside what the file needs."""
REFUSED = 3
"""Exit code of the child for a file that asks for more than tensors."""
_CHILD = """
import resource, sys
limit, paths = int(sys.argv[1]), sys.argv[2:]
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
import json, pickle, re, torch
from safetensors.torch import save_file

class Nothing:
    def __init__(self, *args): pass
    def __setstate__(self, state): pass

names = "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"
torch.serialization.add_safe_globals([(Nothing, name) for name in names])

def unpickle(path, output):
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\\w.]+)", str(error))
        print(named[1] if named else "no tensors", file=sys.stderr)
        sys.exit(3)
    facts = {}
    if isinstance(found, dict) and "network_weights" in found:
        copied = ("trainer_name", "inference_allowed_mirroring_axes")
        facts = {name: found[name] for name in copied if name in found}
        init_args = found.get("init_args")
        if isinstance(init_args, dict) and "configuration" in init_args:
            facts["configuration"] = init_args["configuration"]
        found = found["network_weights"]
    while isinstance(found, dict) and not any(isinstance(v, torch.Tensor) for v in found.values()):
        inner = [v for k, v in found.items() if k in ("state_dict", "model", "module")]
        if len(inner) != 1:
            sys.exit("no tensors in it")
        found = inner[0]
    if not isinstance(found, dict):
        sys.exit("no dict of tensors in it")
    tensors = {k: v.contiguous().clone() for k, v in found.items() if isinstance(v, torch.Tensor)}
    with open(output + ".json", "w") as stream:
        json.dump(facts, stream)
    save_file(tensors, output, metadata={"format": "pt"})

for path, output in zip(paths[::2], paths[1::2]):
    unpickle(path, output)
"""


def pickles(folder: Path) -> list[Path]:
    """List the pickled weights of a folder, without what a trainer left there."""
    found = (path for path in folder.iterdir() if path.suffix in SUFFIXES)
    return sorted(path for path in found if not NO_WEIGHTS.fullmatch(path.name))


def unpickle(paths: Sequence[Path], scratch: Path) -> dict[str, Tensor]:
    """Read the tensors of some pickles, as safetensors in a scratch folder.

    Raises:
        InputError: there is no torch; a file asks for more than tensors, is damaged, or holds a
            key that another has.
    """
    tensors: dict[str, Tensor] = {}
    for path, output in zip(paths, _open_apart(paths, scratch), strict=True):
        found = read_file(output)
        if twice := sorted(found.keys() & tensors.keys()):
            raise InputError(path, twice[0], "it in two files", "each key once", "remove one")
        tensors |= found
    return tensors


def unpickle_nnunet(path: Path, scratch: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of nnU-Net's checkpoint, and its facts about them.

    Returns:
        `network_weights`; and, so far as they are there, `configuration`, `trainer_name` and
        `inference_allowed_mirroring_axes`, unchecked.

    Raises:
        InputError: as `unpickle`.
    """
    [output] = _open_apart([path], scratch)
    return read_file(output), json.loads(output.with_name(f"{output.name}.json").read_bytes())


def _open_apart(paths: Sequence[Path], scratch: Path) -> list[Path]:
    """Let one child make a safetensors file of each pickle, one after the other."""
    if find_spec("torch") is None:
        expected, hint = "PyTorch, to open it", "install tumorchain-jax[torch], or use safetensors"
        raise InputError(paths[0], "pickle", "no torch here", expected, hint)
    outputs = [scratch / f"{path.stem}.safetensors" for path in paths]
    pairs = [str(each) for pair in zip(paths, outputs, strict=True) for each in pair]
    limit = ROOM + 4 * max(path.stat().st_size for path in paths)
    child = subprocess.run(
        [sys.executable, "-I", "-c", _CHILD, str(limit), *pairs],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if child.returncode:
        path = next(p for p, output in zip(paths, outputs, strict=True) if not output.is_file())
        said = (child.stderr.strip().splitlines() or ["no word"])[-1][:200]
        hint = "save its state_dict as safetensors where you trust it"
        if child.returncode == REFUSED:
            # PyTorch's own words advise to open it all the same.
            raise InputError(path, "pickle", f"{said} in it", "tensors alone", hint)
        raise InputError(path, "pickle", said, "a state dict", hint)
    return outputs
