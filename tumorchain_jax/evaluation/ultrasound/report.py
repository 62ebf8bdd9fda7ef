"""A cross-validation from its configuration to its tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.ultrasound.crossval import cross_validate
from tumorchain_jax.evaluation.ultrasound.ship import ship
from tumorchain_jax.evaluation.ultrasound.tables import guard_text, tables, text


def report(
    config: ConfigDict,
    workdir: Path,
    seeds: Sequence[int],
    leave_out: bool,
    output: Path | None = None,
    others: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[dict[str, Any], str]:
    """Train and score; write `crossval.json` and `crossval.txt`.

    Args:
        output: where to ship a classifier, if it is given.
        others: folders of pictures that are no breast ultrasound, which its guard is measured on.

    Returns:
        the tables as plain values and as text.

    Raises:
        InputError: the configuration or the data cannot be used.
    """
    pictures, found = cross_validate(config, workdir, seeds, leave_out)
    greys = pictures.images.reshape(len(pictures.images), -1).mean(axis=1)
    values = tables(pictures, found, greys) | {
        "view": config.data.view,
        "test_part": int(pictures.is_test.sum()),
        "model": config.model.__class__.__name__,
    }
    said = text(values)
    write_file(workdir / "crossval.json", (json.dumps(values, indent=1) + "\n").encode())
    write_file(workdir / "crossval.txt", said.encode())
    if output:
        values["guard"] = ship(config, workdir, output, pictures, found, others)
        said += guard_text(values["guard"])
    return values, said
