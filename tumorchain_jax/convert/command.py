"""`tumorchain convert`: what each of its four words does, as plain values."""

from pathlib import Path
from typing import Any

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.importer import describe, import_folder
from tumorchain_jax.convert.nnunet import (
    export_segmentation,
    import_segmentation,
    inspect_segmentation,
    is_segmentation,
    verify_segmentation,
)
from tumorchain_jax.convert.recognise import open_source
from tumorchain_jax.convert.tumorchain import (
    export_tumorchain,
    import_tumorchain,
    is_ours,
    is_theirs,
    verify_tumorchain,
)
from tumorchain_jax.convert.verifier import Verdict, verify
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.weights.matching import match

SHOWN = 20
"""Keys that a line of text names."""


def convert(
    what: str,
    source: Path,
    output: Path | None,
    dtype: str | None,
    base: Path | None,
    adapter: Path | None,
) -> dict[str, Any]:
    """Do it.

    Returns:
        what was done or found; of `verify` with `same`.

    Raises:
        InputError: the input cannot be used, or `output` is not given where it is needed.
    """
    if is_segmentation(source):
        return _convert_segmentation(what, source, output, dtype)
    if what == "inspect":
        with open_source(source, base) as (tensors, family):
            return describe(family, tensors, match(source, family, tensors, dtype))
    output = _named(output)
    if what == "verify":
        return _told(_verify(source, output))
    if what == "import" and is_theirs(source):
        with atomic_directory(output) as part:
            count = import_tumorchain(source, part)
    elif what == "import":
        count = len(import_folder(source, output, dtype, base))
    elif is_ours(source):
        with atomic_directory(output) as part:
            count = export_tumorchain(source, part)
    else:
        count = len(export_folder(source, output, dtype, adapter))
    return {"output": str(output), "tensors": count}


def _convert_segmentation(
    what: str, source: Path, output: Path | None, dtype: str | None
) -> dict[str, Any]:
    if dtype not in (None, "float32"):
        hint = "leave it out"
        raise InputError("command line", "--dtype", dtype, "float32, as nnU-Net has it", hint)
    if what == "inspect":
        return inspect_segmentation(source)
    output = _named(output)
    if what == "verify":
        return _told(verify_segmentation(source, output))
    change = import_segmentation if what == "import" else export_segmentation
    return {"output": str(output), "tensors": change(source, output)}


def _named(output: Path | None) -> Path:
    if output is None:
        raise InputError("command line", "-o", "none", "a folder", "name one")
    return output


def _told(verdict: Verdict) -> dict[str, Any]:
    return {"same": verdict.same, **vars(verdict)}


def _verify(source: Path, output: Path) -> Verdict:
    if is_ours(source):
        return verify_tumorchain(source, output)
    return verify_tumorchain(output, source) if is_ours(output) else verify(source, output)


def text(facts: dict[str, Any]) -> str:
    """Those values for people."""
    if "family" in facts:
        return _inspected(facts)
    lines = []
    for name, value in facts.items():
        plain = value
        if isinstance(value, list):
            more = " ..." if len(value) > SHOWN else ""
            keys = "" if name == "equal" else f": {' '.join(value[:SHOWN])}{more}"
            plain = f"{len(value)}{keys if value else ''}"
        lines.append(f"{name}: {plain}")
    return "\n".join(lines)


def _inspected(facts: dict[str, Any]) -> str:
    head = f"{facts['family']}: {facts['tensors']} tensors, {facts['bytes'] / 1e6:.1f} MB"
    rows = [
        (path, " x ".join(map(str, row["shape"])), row["from"])
        for path, row in facts["parameters"].items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{head}, {' '.join(facts['dtypes'])}"]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for name in ("carried", "ignored"):
        keys = facts[name]
        more = " ..." if len(keys) > SHOWN else ""
        lines += [f"{name}: {len(keys)}: {' '.join(keys[:SHOWN])}{more}"] if keys else []
    return "\n".join(lines)
