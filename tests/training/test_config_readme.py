"""The table of configs/README.md is that of `base_config`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tumorchain_jax.models.tumorchain.model import TUMORCHAIN_3B
from tumorchain_jax.training.tumorchain.config import base_config

CONFIGS = Path(__file__).parents[2] / "configs"


def leaves(config: ConfigDict, before: str = "") -> Iterator[tuple[str, Any]]:
    for name in config:
        if isinstance(config[name], ConfigDict):
            yield from leaves(config[name], f"{before}{name}.")
        else:
            yield before + name, config[name]


def test_readme_lists_every_field_and_default() -> None:
    text = (CONFIGS / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z_.]+)` \| .+ \| `(.+)`.* \|$", text, re.MULTILINE)
    expected = {name: repr(value) for name, value in leaves(base_config(TUMORCHAIN_3B))}
    expected["model"] = "TUMORCHAIN_3B"
    assert dict(rows) == expected


def test_readme_lists_every_file() -> None:
    text = (CONFIGS / "README.md").read_text()
    for path in CONFIGS.glob("*.py"):
        assert f"`{path.stem}`" in text
