"""The losses of a tiny training, kept as text: a change that should not alter training does not.

Where it should, and did, write the new ones, and say in the commit why they differ:

    python tests/golden/test_golden_loss.py > tests/golden/loss.txt

They are kept with 5 digits and compared to 1 part in 2000, about the fourth: processors differ in
the last bits of a sum, and training makes more of that.
"""

import json
import runpy
import tempfile
from pathlib import Path

import jax
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.training.registry import train

LOSSES = Path(__file__).with_name("loss.txt")
NANO = Path(__file__).parents[2] / "configs" / "nano.py"
RELATIVE = 5e-4


def tiny() -> ConfigDict:
    """nano's training, five steps of each stage, with a tiny model and eight tiny patients."""
    config = runpy.run_path(str(NANO))["get_config"]()
    encoder = ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2)
    decoder = Qwen2Config(512, 16, 32, 2, 2, 1, 8, True)
    sizes = {
        "model": TumorChainConfig(encoder, decoder, roi_slots=4),
        "data.phantoms": 8,
        "pretrain.patch_stage.steps": 5,
        "pretrain.patch_stage.patches_per_batch": 16,
        "pretrain.scan_stage.steps": 5,
        "pretrain.scan_stage.scans": 2,
        "steps": 5,
        "batch_size": 2,
        "log_every": 1,
    }
    config.update_from_flattened_dict(sizes)
    return config


def losses() -> str:
    """A line for each step of the encoder's two lessons, and then of all together."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        train(tiny(), workdir)
        stages = {
            "alone": workdir / "pretrain" / "patch_stage",
            "whole": workdir / "pretrain" / "scan_stage",
            "all": workdir,
        }
        return "".join(
            f"{stage} step {values['step']}: loss {values['loss']:.5g}\n"
            for stage, log in stages.items()
            for values in map(json.loads, (log / "metrics.jsonl").read_text().splitlines())
        )


@pytest.mark.system(haste=True)
def test_losses_are_as_they_were() -> None:
    found = losses().splitlines()
    kept = LOSSES.read_text().splitlines()
    assert [line.rpartition(" ")[0] for line in found] == [line.rpartition(" ")[0] for line in kept]
    numbers, expected = ([float(line.split()[-1]) for line in lines] for lines in (found, kept))
    assert numbers == pytest.approx(expected, rel=RELATIVE)


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)  # as tests are compiled
    print(losses(), end="")
