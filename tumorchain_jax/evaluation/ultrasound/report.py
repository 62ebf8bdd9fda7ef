"""A cross-validation from its configuration to its tables."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.ultrasound.crossval import cross_validate
from tumorchain_jax.evaluation.ultrasound.tables import tables, text


def report(
    config: ConfigDict, workdir: Path, seeds: Sequence[int], leave_out: bool
) -> tuple[dict[str, Any], str]:
    """Train and score; write `crossval.json` and `crossval.txt`.

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
    return values, said
