import json
import re
import time
from functools import partial
from pathlib import Path

import pytest

from tumorchain_jax.bench import data as bench_module
from tumorchain_jax.bench.step import bench_step
from tumorchain_jax.bench.timing import seconds, table
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

NANO = Path(__file__).parents[2] / "configs" / "nano.py"


def test_seconds_are_a_median_after_a_warm_up() -> None:
    waits = iter([0.2, 0.01, 0.01, 0.2])
    assert 0.009 < seconds(lambda: time.sleep(next(waits)), repeats=3) < 0.1
    assert next(waits, None) is None


@pytest.mark.system(haste=True)
def test_phantoms_and_their_preprocessing_are_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(bench_module, "bench_data", partial(bench_module.bench_data, 1))
    assert main(["bench", "data", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert len(values) == 4
    assert all(0 < value < 1000 for value in values.values())


@pytest.mark.system(haste=True)
def test_the_parts_of_a_step_add_up() -> None:
    config = read_config(NANO, [])
    encoder = ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2)
    with config.unlocked():
        config.model = TumorChainConfig(encoder, Qwen2Config(512, 16, 32, 2, 2, 1, 8, True))
        config.batch_size = 1
    values = bench_step(config, repeats=1)
    whole = values.pop("step, s")
    assert whole > 0
    values.pop("batch, s")
    assert sum(values.values()) == pytest.approx(whole)


def test_a_step_needs_a_configuration(capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", "step"]) == 2
    assert "--config" in capsys.readouterr().err


def test_a_table_lines_up() -> None:
    assert re.fullmatch(r"a +1\nlong +0\.25", table({"a": 1.0, "long": 0.25}))
