"""`tumorchain convert`: its four verbs, as plain values and as text."""

from pathlib import Path
from typing import Any

from tumorchain_jax.convert.format import Facts, Options
from tumorchain_jax.convert.hub import export_hub
from tumorchain_jax.convert.nnunet import NNUNET
from tumorchain_jax.convert.published import PUBLISHED
from tumorchain_jax.convert.tumorchain import TUMORCHAIN
from tumorchain_jax.convert.vision_language import VISION_LANGUAGE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.weights.hub import hub_folder, is_hub_address

FORMATS = (NNUNET, TUMORCHAIN, VISION_LANGUAGE, PUBLISHED)
"""The first that detects a folder is its format."""
SHOWN = 20
"""Keys that a line of text names."""


def convert(
    what: str,
    source: Path,
    output: Path | None,
    dtype: str | None = None,
    base: Path | None = None,
    adapter: Path | None = None,
    drop_head: bool = False,
    tower: bool = False,
    hub: Path | None = None,
) -> Facts:
    """Run one conversion verb: import, export, inspect or verify.

    Args:
        hub: of an export: the folder of a Hugging Face repository, in place of `output`.
        source: a folder or file, or `hf:OWNER/NAME[@REVISION]` of the Hugging Face Hub.

    Returns:
        what was done or found; of `verify` with `same`, of the hub's with `revision`.

    Raises:
        InputError: the input cannot be used, an option is not one of its format, or `output` is
            not given where it is needed.
    """
    if is_hub_address(str(source)):
        fetched = hub_folder(str(source))
        facts = convert(
            what, fetched.path, output, dtype, base, adapter, drop_head=drop_head, tower=tower
        )
        return {"revision": fetched.revision, **facts}
    if hub is not None:
        given = [name for name, value in (("-o", output), ("--dtype", dtype)) if value]
        if what != "export" or given:
            found = f"with {given[0]}" if given else f"with {what}"
            raise InputError(
                "command line", "--hub", found, "export -i CHECKPOINT alone", "omit it"
            )
        return {"output": str(hub), "tensors": export_hub(source, hub)}
    options = Options(dtype, base, adapter, drop_head, tower)
    # An output can tell more than a damaged source.
    of = [source, output] if what == "verify" and output else [source]
    form = next(form for form in FORMATS if any(form.detect(folder) for folder in of))
    form.check(options)
    if what == "inspect":
        return form.inspect(source, options)
    if output is None:
        raise InputError("command line", "-o", "none", "a folder", "give one with -o")
    if what == "verify":
        verdict = form.verify(source, output)
        return {"same": verdict.same, **vars(verdict)}
    change = form.to_ours if what == "import" else form.to_theirs
    return {"output": str(output), "tensors": change(source, output, options)}


def text(facts: dict[str, Any]) -> str:
    """Format those values for people."""
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
    for name in ("passthrough", "ignored"):
        keys = facts[name]
        more = " ..." if len(keys) > SHOWN else ""
        lines += [f"{name}: {len(keys)}: {' '.join(keys[:SHOWN])}{more}"] if keys else []
    return "\n".join(lines)
