"""`tumorchain experiments` as one types it: what is refused, and two real runs of a tiny model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.items import read_items
from tumorchain_jax.weights.model_folder import load_model

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiments.py"
# Two steps of a tiny model on a few tiny patients.
TINY = f"""
import runpy
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

def get_config():
    config = runpy.run_path({str(EXPERIMENTS)!r})["get_config"]()
    config.model = TumorChainConfig(
        ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
        Qwen2Config(512, 16, 32, 1, 2, 1, 8, True),
        roi_slots=4,
    )
    config.data.phantoms = 3
    config.test.phantoms = 1
    config.adaptation.phantoms = 3
    config.pretrain.patch_stage.steps = 0
    config.steps = config.batch_size = 2
    config.seeds = 1
    config.log_every = 1
    config.optimizer = "adamw"
    return config
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the user's cache alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; its exit code, output and errors."""

    def run(*words: object, config: Path = EXPERIMENTS) -> tuple[int, str, str]:
        where = ["--config", str(config), "--workdir", str(tmp_path / "work")]
        code = main(["experiments", *where, *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_list(experiments: Run, tmp_path: Path) -> None:
    code, out, _ = experiments("--list", "--config.seeds=2")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert code == 0
    assert lines[:3] == [
        ["full-seed0", "to do"],
        ["full-seed1", "to do"],
        ["without-iir-seed0", "to do"],
    ]
    assert len(lines) == 17
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "full", "nonsense"], "--only: found nonsense, expected full without-iir"),
        (["--config.data.colour=3"], "colour"),
        (["--config.alpha=much"], "alpha"),
        (["--seeds", "3"], "--seeds: found an unknown argument"),
        (["--only", "lora"], "make full first"),
        (["--config.test.first_seed=1000000"], "none of data's"),
    ],
)
def test_bad_input_is_one_line(
    experiments: Run, tmp_path: Path, words: list[str], message: str
) -> None:
    code, out, err = experiments(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tumorchain: error: ")
    assert message in err
    assert not (tmp_path / "work").exists()


@pytest.mark.system(haste=True)
def test_two_real_runs(experiments: Run, tmp_path: Path) -> None:
    config, work = tmp_path / "tiny.py", tmp_path / "work"
    config.write_text(TINY)
    code, out, err = experiments("--only", "full", "lora", config=config)
    assert code == 0, err
    numbers = json.loads((work / "table.json").read_text())
    assert list(numbers["runs"]) == ["full", "lora"]
    assert out.endswith((work / "table.md").read_text())
    full, lora = (work / "runs" / f"{name}-seed0" for name in ("full", "lora"))
    asked = [read_items(run / "items.jsonl") for run in (full, lora)]
    questions = [[(item.patient, item.question) for item in items] for items in asked]
    assert questions[0] == questions[1]
    assert len({item.patient for item in asked[0]}) == 1

    base, adapted = (load_model(run / "export").params for run in (full, lora))
    for path, leaf in adapted.items():
        if path.startswith("decoder/") and "lora" not in path:
            assert (leaf == base[path]).all(), path
        elif path.endswith("lora_b"):
            assert leaf.any(), path
    projector = "projector/linear1/kernel"
    assert (adapted[projector] != base[projector]).any()

    again = experiments("--only", "lora", config=config)
    assert again == (0, (work / "table.md").read_text(), "")
    listed = experiments("--list", config=config)[1]
    assert [line.split()[0] for line in listed.splitlines() if line.endswith("done")] == [
        "full-seed0",
        "lora-seed0",
    ]
