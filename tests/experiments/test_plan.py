import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import first_match, flatten
from tumorchain_jax.experiments.plan import configure, plan, select
from tumorchain_jax.models.tumorchain.model import abstract_params

FOLDERS = {"data/folder": "W/data", "pretrain/folder": "W/pretrain"}
ADAPTING = {
    "data/folder": "W/adaptation-data",
    "data/phantoms": 500,
    "data/first_seed": 4_000_000,
    "init": "W/runs/full-seed0/export",
    "optimizer": "adamw",
    "learning_rate": 8e-4,
}
# What differs from the configuration file in the first run of each experiment.
CHANGES: dict[str, dict[str, Any]] = {
    "full": {},
    "without-iir": {"iir": False},
    "without-cot": {"cot": False},
    "without-both": {"iir": False, "cot": False},
    "alpha-0": {"alpha": 0.0},
    "alpha-0.1": {"alpha": 0.1},
    "alpha-0.5": {"alpha": 0.5},
    "alpha-1.5": {"alpha": 1.5},
    "roi-global": {"model/roi_source": "global"},
    "history-latest": {"history": "latest"},
    "roi-slots-16": {"model/roi_slots": 16},
    "lora": ADAPTING
    | {
        "model/lora/targets": ["decoder/.*/(q|k|v|o)_proj"],
        "model/lora/rank": 8,
        "model/lora/alpha": 16.0,
        "model/lora/rslora": False,
        "model/lora/ranks": [],
        "model/lora/alphas": [],
        "trainable": [
            [r".*/lora_[ab]", True],
            ["decoder/.*", False],
            ["encoder/.*", False],
            [".*", True],
        ],
        "lr_multiplier": [[r".*/lora_[ab]", 10.0], ["projector/.*", 0.1], [".*", 1.0]],
    },
    "full-finetuning": ADAPTING,
}


def flat(config: ConfigDict) -> dict[str, Any]:
    return flatten(json.loads(config.to_json_best_effort()))


def configured(config: ConfigDict) -> dict[tuple[str, int], ConfigDict]:
    runs = plan(config)
    return {(run.name, run.seed): configure(config, run, runs[0], Path("W")) for run in runs}


def test_which_runs_there_are(config: ConfigDict) -> None:
    runs = [(run.name, run.seed) for run in plan(config)]
    seeded = ("full", "without-iir", "without-cot", "without-both")
    assert runs == [(name, s) for name in CHANGES for s in (range(3) if name in seeded else [0])]
    config.seeds = 1
    assert [(run.name, run.seed) for run in plan(config)] == [(name, 0) for name in CHANGES]


def test_as_many_roi_slots_as_the_model_has_are_the_full_method(config: ConfigDict) -> None:
    for slots, names in ((24, ["roi-slots-16", "roi-slots-32"]), (16, ["roi-slots-32"])):
        config.model = replace(config.model, roi_slots=slots)
        assert [run.name for run in plan(config) if "slots" in run.name] == names


def test_run_changes_what_its_name_says_and_nothing_else(config: ConfigDict) -> None:
    before = flat(config)
    for (name, seed), changed in configured(config).items():
        after = flat(changed)
        expected = FOLDERS | CHANGES[name] | ({"seed": seed} if seed else {})
        found = {key: value for key, value in after.items() if before.get(key) != value}
        assert found == expected, name
        assert before.keys() - after.keys() <= {"model/lora"}
    assert flat(config) == before


def test_model_with_crops_is_compared_with_itself_without() -> None:
    config = read_config(Path(__file__).parents[2] / "configs" / "experiments_lens.py", [])
    of = configured(config)
    names = ("full", "without-iir", "without-cot", "without-both", "without-lens")
    assert list(of) == [(name, seed) for name in names for seed in range(3)]
    before = flat(config)
    for (name, seed), changed in of.items():
        after = flat(changed)
        if name != "without-lens":
            expected = FOLDERS | CHANGES[name] | ({"seed": seed} if seed else {})
            assert {k: v for k, v in after.items() if before.get(k) != v} == expected
            continue
        assert after["pretrain/folder"] == "W/pretrain-without-lens"
        assert after["data/folder"] == "W/data"
        assert changed.model.crop is None
        assert changed.model.encoder == config.model.encoder
        lens, plain = (abstract_params(model) for model in (config.model, changed.model))
        alone = {path.split("/")[0] for path in lens.keys() - plain.keys()}
        assert (alone, plain.keys() - lens.keys()) == ({"crop_embedding"}, set())


def test_lora_and_full_finetuning_differ_in_how_the_decoder_is_trained(config: ConfigDict) -> None:
    of = configured(config)
    for name in ("lora", "full-finetuning"):
        changed = of[name, 0]
        paths = abstract_params(changed.model)
        trained = {path for path in paths if first_match(changed.trainable, path)}
        rest = {path for path in paths if not path.startswith(("encoder/", "decoder/"))}
        assert rest <= trained
        decoder = {path for path in paths if path.startswith("decoder/")}
        adapters = {path for path in paths if re.search(r"/self_attn/._proj/lora_[ab]$", path)}
        assert len(adapters) == (8 if name == "lora" else 0)
        assert trained - rest == (adapters if name == "lora" else decoder)


def test_experiments_are_chosen_by_name(config: ConfigDict) -> None:
    runs = plan(config)
    assert select(runs, []) == runs
    chosen = select(runs, ["lora", "without-cot"])
    assert [(run.name, run.seed) for run in chosen] == [
        ("without-cot", 0),
        ("without-cot", 1),
        ("without-cot", 2),
        ("lora", 0),
    ]
    with pytest.raises(InputError, match="--only: found alpha-1, expected full without-iir"):
        select(runs, ["full", "alpha-1"])


@pytest.mark.parametrize("field", ["test", "adaptation", "seeds", "iir", "init"])
def test_configuration_that_lacks_a_field_is_refused(config: ConfigDict, field: str) -> None:
    with config.unlocked():
        del config[field]
    with pytest.raises(InputError, match=rf"--config: .*{field}"):
        configured(config)
