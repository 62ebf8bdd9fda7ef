"""The configuration fields that every training has."""

from typing import Any

from ml_collections import ConfigDict


def loop_config() -> ConfigDict:
    """Mesh, logging, checkpoints and monitoring, with their defaults; see configs/README.md."""
    fields: dict[str, Any] = {
        "mesh": {"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1},
        "log_every": 10,
        "checkpoint": {"every": 1000, "minutes": 30.0, "keep": 2, "best": "loss"},
        "watch": {"profile": "", "wandb": "", "hang_timeout_s": 600.0},
    }
    return ConfigDict(fields)
