"""Translations between looks: trained, exported, measured; and settings that cannot be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.style.compare import (
    Translator,
    compare,
    methods_of,
    split_looks,
    table_text,
    write_grid,
)
from tumorchain_jax.models.translation.model import TranslationConfig
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.translation.config import base_config
from tumorchain_jax.training.translation.train import looks, open_pictures
from tumorchain_jax.ultrasound.lesion import MANIFEST, Box, Lesion, lines


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright pictures of one device, dark ones of another, one of each patient."""
    folder = tmp_path_factory.mktemp("translation") / "bus"
    (folder / "images").mkdir(parents=True)
    rng, rows = np.random.default_rng(0), []
    for number in range(96):
        device = "GE Logiq 7" if number % 2 else "GE Logiq 5"
        image = rng.normal(150 if number % 2 else 80, 20, (40, 40)).clip(0, 255).astype(np.uint8)
        image[12:28, 10:30] //= 3
        Image.fromarray(image).save(folder / "images" / f"{number}.png")
        rows.append(
            Lesion(
                id=str(number), image=f"images/{number}.png", mask="", box=Box(8, 10, 24, 20),
                patient=str(number), patient_known=True, view="", device=device, source="bus-bra",
                label="malignant" if number // 2 % 2 else "benign", width=40, height=40,
                hash=rng.bytes(64).hex(), cluster=number,
            )
        )  # fmt: skip
    (folder / MANIFEST).write_text("".join(lines(rows)))
    return folder


def tiny(prepared: Path, method: str, steps: int) -> Any:
    config = base_config(method, TranslationConfig(2, 1, 2))
    config.data.folder, config.data.side, config.steps = str(prepared), 24, steps
    config.data.folds, config.nce_places, config.pool, config.log_every = 3, 16, 2, 1
    return config


@pytest.mark.system(haste=True)
def test_both_are_trained_and_measured_beside_the_untrained(prepared: Path, tmp_path: Path) -> None:
    config = tiny(prepared, "cyclegan", 2)
    train(config, tmp_path / "whole")
    rows = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    metrics = json.loads(rows[-1])
    parts = metrics["adversarial"] + 10 * metrics["cycle"] + 5 * metrics["identity"]
    assert metrics["loss"] == pytest.approx(parts + metrics["judges"], rel=1e-5)
    train(tiny(prepared, "cut", 2), tmp_path / "cut")
    methods = methods_of([tmp_path / "whole" / "export", tmp_path / "cut" / "export"])
    assert set(methods) == {"histogram", "fda", "cyclegan", "cut"}
    own = split_looks(open_pictures(config, tmp_path / "whole"), config)
    assert {row.device for row in own.rows} == {"GE Logiq 7"}
    values, made = compare(own, methods)
    table = values["methods"]
    assert table["none"]["lesion_overlap"] == 1.0
    assert table["none"]["spectrum"]["device_accuracy"] > 0.9
    assert table["none"]["spectrum"]["to_target"] < 0.1
    assert table["histogram"]["spectrum"]["to_target"] > 0.9
    assert table["histogram"]["spectrum"]["kid"] < table["none"]["spectrum"]["kid"] / 2
    assert "hidden_growth" in table["cyclegan"]
    assert "hidden_growth" not in table["cut"]
    assert all(images.shape == own.held_a.shape for images in made.values())
    write_grid(tmp_path / "grid.png", own, made)
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (2 * 8 * 28, 2 * 6 * 28)
    assert "cyclegan" in table_text(values)
    again = methods["cyclegan"]
    assert isinstance(again, Translator)
    with pytest.raises(InputError, match="cyclegan twice"):
        methods_of([tmp_path / "whole" / "export"] * 2)


def test_looks_that_cannot_be_trained_are_refused(prepared: Path, tmp_path: Path) -> None:
    config = tiny(prepared, "cut", 1)
    pictures = open_pictures(config, tmp_path)
    found = looks(pictures, config)
    assert not (found["a"] & found["b"]).any()
    assert not (found["a"] & pictures.is_test).any()
    for name, value in (("a", "Aplio"), ("a", ""), ("b", "GE Logiq 7")):
        config = tiny(prepared, "cut", 1)
        config.data[name] = value
        with pytest.raises(InputError, match=f"data.{name}|data.b"):
            looks(pictures, config)
    config = tiny(prepared, "cut", 1)
    for side in (20, 26):
        config.data.side = side
        with pytest.raises(InputError, match=rf"data\.side: found {side}"):
            train(config, tmp_path / "odd")
