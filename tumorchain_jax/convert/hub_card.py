"""The model card of an exported repository."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.models.tumorchain.model import TumorChainConfig

CARD = "hub_files/card.md"


def model_card(source: Path, config: TumorChainConfig, fields: dict[str, Any]) -> str:
    """Write the card of a checkpoint's repository.

    Args:
        source: the checkpoint; its `evaluation.json` is quoted if there is one.
        fields: of the repository's `config.json`.
    """
    size = " x ".join(map(str, config.encoder.image))
    count, roi = len(config.roi.regions), config.roi
    crops = ""
    if count:
        crops = (
            f"| `crops` | {count} x {size} | crops around {', '.join(roi.regions)} |\n"
            f"| `crop_world` | {count} x 7 | spacing in mm, centre, and whether there is a crop |\n"
        )
    text = files("tumorchain_jax.convert").joinpath(CARD).read_text("utf-8")
    return text.format(
        notice=NOTICE,
        version=__version__,
        image=size,
        level=fields["preprocess"]["level"],
        width=fields["preprocess"]["width"],
        candidates=roi.candidates,
        crops=crops,
        tokens=roi.visual_tokens,
        then=f" and of {count} crops" if count else "",
        crop_keys=", `crop_embedding.*`" if count else "",
        evaluation=_evaluation(source),
    )


def _evaluation(source: Path) -> str:
    path = source / "evaluation.json"
    if not path.is_file():
        return "Never evaluated."
    values = json.dumps(json.loads(path.read_bytes()), indent=1)
    return f"`evaluation.json` of the checkpoint, as it was measured:\n\n```json\n{values}\n```"
