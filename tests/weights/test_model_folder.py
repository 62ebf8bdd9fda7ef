import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights import model_folder
from tumorchain_jax.weights.measured import MEASURED_FILES, Measured, write_evaluation
from tumorchain_jax.weights.model_folder import export, load_model, weights_sha256
from tumorchain_jax.weights.scores import REAL, DomainScores
from tumorchain_jax.weights.tensor_files import write_arrays

PREPROCESS = PreprocessConfig((8, 16, 16), 50.0, 350.0)


def assert_equal_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def params(tiny: TumorChainConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = abstract_params(tiny).items()
    return {path: rng.standard_normal(leaf.shape, np.float32) for path, leaf in shapes}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the liver"], 300)


@pytest.fixture
def folder(tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    export(tmp_path / "export", tiny, PREPROCESS, "latest", params, tokenizer, True)
    return tmp_path / "export"


def test_an_export_comes_back_bit_for_bit(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, folder: Path
) -> None:
    found = load_model(folder)
    assert (found.model, found.preprocess) == (tiny, PREPROCESS)
    assert (found.history, found.initial_roi) == ("latest", True)
    assert found.tokenizer.token_bytes == tokenizer.token_bytes
    assert_equal_trees(found.params, params)
    assert len(found.sha256) == 64
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}


def test_adapters_are_exported_with_their_rule(
    tiny: TumorChainConfig, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = replace(tiny, lora=LoRA((".*/q_proj",), rank=2))
    shapes = abstract_params(config).items()
    params = {path: np.full(leaf.shape, 0.5, np.float32) for path, leaf in shapes}
    export(tmp_path / "new" / "export", config, PREPROCESS, "all", params, tokenizer)
    found = load_model(tmp_path / "new" / "export")
    assert found.model == config
    assert_equal_trees(found.params, params)


def test_device_arrays_and_views_are_exported_too(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    name = "decoder/embed_tokens/embedding"
    mixed = params | {name: np.asfortranarray(params[name])}
    mixed["projector/linear1/bias"] = jnp.asarray(params["projector/linear1/bias"])
    export(tmp_path / "export", tiny, PREPROCESS, "all", mixed, tokenizer)
    assert_equal_trees(load_model(tmp_path / "export").params, params)


def test_a_new_export_takes_the_place_of_the_old(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, folder: Path
) -> None:
    before = load_model(folder).sha256
    changed = {path: leaf + 1 for path, leaf in params.items()}
    export(folder, tiny, PREPROCESS, "all", changed, tokenizer)
    assert load_model(folder).sha256 != before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


def test_a_failed_export_leaves_the_old_one_whole(
    tiny: TumorChainConfig,
    params: dict,
    tokenizer: Tokenizer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = load_model(folder).sha256

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(model_folder, "write_arrays", fail)
    with pytest.raises(OSError, match="no space"):
        export(folder, tiny, PREPROCESS, "all", params, tokenizer)
    assert load_model(folder).sha256 == before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


def test_arrays_have_the_mode_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_arrays(tmp_path / "arrays", {"a/b": np.arange(3.0)})
    assert (tmp_path / "arrays").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert load_file(tmp_path / "arrays")["a/b"].tolist() == [0, 1, 2]


def edit_config(change: Callable[[dict], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    return spoil


def edit_weights(change: Callable[[dict], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        params = load_file(folder / "model.safetensors")
        change(params)
        save_file(params, folder / "model.safetensors")

    return spoil


def truncate(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


WEIGHT = "decoder/embed_tokens/embedding"


def of_model(part: str, **values: Any) -> Callable[[Path], None]:
    return edit_config(lambda c: (c["model"][part] if part else c["model"]).update(values))


def without(part: str, name: str) -> Callable[[Path], None]:
    return edit_config(lambda c: (c["model"][part] if part else c["model"]).pop(name))


def with_weight(value: float) -> Callable[[Path], None]:
    return edit_weights(lambda p: p[WEIGHT].reshape(-1).__setitem__(-1, value))


def as_dtype(dtype: Any) -> Callable[[Path], None]:
    return edit_weights(lambda p: p.update({WEIGHT: p[WEIGHT].astype(dtype)}))


NAN, INFINITY = float("nan"), float("inf")
BAD_VALUES = {
    "NaN": (with_weight(NAN), f"{WEIGHT}: found NaN"),
    "infinity": (with_weight(-INFINITY), f"{WEIGHT}: found NaN or infinity"),
    "int8": (as_dtype(np.int8), f"{WEIGHT}: found int8, expected float32"),
    "int64": (as_dtype(np.int64), f"{WEIGHT}: found int64, expected float32"),
    "no epsilon": (without("decoder", "rms_norm_eps"), "decoder.rms_norm_eps: found no such field"),
    "epsilon of nothing": (of_model("decoder", rms_norm_eps=NAN), "rms_norm_eps: found nan"),
    "epsilon 0": (of_model("decoder", rms_norm_eps=0.0), "rms_norm_eps: found 0.0, expected"),
    "theta 0": (of_model("decoder", rope_theta=0.0), "rope_theta: found 0.0, expected over 0"),
    "theta below": (of_model("decoder", rope_theta=-1e4), "rope_theta: found -10000.0"),
    "endless theta": (of_model("decoder", rope_theta=INFINITY), "rope_theta: found inf"),
    "text as truth": (
        of_model("decoder", tie_word_embeddings="false"),
        "tie_word_embeddings: found 'false', expected bool",
    ),
    "no heads": (of_model("decoder", num_attention_heads=0), "num_attention_heads: found 0"),
    "odd heads": (of_model("decoder", head_dim=7), r"head_dim: found 7, expected an even number"),
    "heads": (of_model("decoder", num_key_value_heads=7), "num_key_value_heads: found"),
    "a new field": (of_model("decoder", colour=1), "decoder.colour: found an unknown field"),
    "encoder's heads": (of_model("encoder", num_heads=7), "encoder.num_heads: found"),
    "no patch": (of_model("encoder", patch=[0, 4, 4]), r"encoder.patch: found \(0, 4, 4\)"),
    "patch": (of_model("encoder", patch=[3, 4, 4]), r"encoder.patch: found \(3, 4, 4\)"),
    "two axes": (of_model("encoder", image=[8, 16]), r"encoder.image: found \(8, 16\)"),
    "another grid": (edit_config(lambda c: c["preprocess"].update(grid=[8, 16, 8])), "grid"),
    "no slots": (of_model("", roi_slots=0), "roi_slots: found 0, expected over 0"),
    "no slots at all": (without("", "roi_slots"), "roi_slots: found no such field"),
    "pool": (of_model("", global_pool=3), "global_pool: found 3, expected a divisor"),
    "source": (of_model("", roi_source="eyes"), "roi_source: found 'eyes', expected 'encoder' or"),
    "activation": (of_model("projector", activation="tanh"), "activation: found 'tanh'"),
    "dtype": (of_model("", dtype="int8"), "dtype: found 'int8'"),
    "text as initial_roi": (
        edit_config(lambda c: c.update(initial_roi="no")),
        "initial_roi: found 'no', expected bool",
    ),
    "no history": (edit_config(lambda c: c.pop("history")), "history: found no such field"),
    "a field of config.json": (edit_config(lambda c: c.update(colour=1)), "colour: found an unkn"),
    "deep JSON": (
        lambda f: (f / "config.json").write_text('{"model":' + "[" * 10**5),
        "checkpoint: found .*recursion",
    ),
}
BAD_EXPORTS = {
    **BAD_VALUES,
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: found none"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: found none"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: found none"),
    "truncated weights": (truncate, "checkpoint: found .*incomplete"),
    "text as weights": (
        lambda f: (f / "model.safetensors").write_text("weights"),
        "checkpoint: found",
    ),
    "torn tokenizer": (lambda f: (f / "tokenizer.json").write_text('{"a'), "tokenizer: found"),
    "binary config": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"),
        "checkpoint: found .*decode",
    ),
    "torn config": (lambda f: (f / "config.json").write_text('{"model":'), "Expecting value"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "checkpoint: found"),
    "no model": (edit_config(lambda c: c.pop("model")), "found .*model.*, expected a TumorChain"),
    "unknown field": (edit_config(lambda c: c["model"].update(colour=1)), "colour"),
    "number as encoder": (edit_config(lambda c: c["model"].update(encoder=3)), "checkpoint: found"),
    "unknown history": (edit_config(lambda c: c.update(history="some")), "history: found 'some'"),
    "another window": (edit_config(lambda c: c["preprocess"].update(width=-1.0)), "width > 0 HU"),
    "another size": (
        edit_config(lambda c: c["model"]["decoder"].update(vocab_size=600)),
        rf"safetensors: {WEIGHT}: found \(512, 16\), expected \(600, 16\)",
    ),
    "small vocabulary": (
        edit_config(lambda c: c["model"]["decoder"].update(vocab_size=90)),
        "vocabulary: found 2.. ids, expected at most the model's 90",
    ),
    "extra weight": (
        edit_weights(lambda p: p.update(extra=np.zeros(3, np.float32))),
        r"safetensors: extra: found \(3,\), expected no such array",
    ),
    "missing weight": (
        edit_weights(lambda p: p.pop(WEIGHT)),
        rf"safetensors: {WEIGHT}: found no such array, expected \(512, 16\)",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_EXPORTS.values(), ids=BAD_EXPORTS)
def test_a_bad_export_is_refused_in_one_line(
    folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=message) as error:
        load_model(folder)
    assert str(error.value).startswith(str(folder))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) <= 300 + len(str(folder))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a checkpoint folder"):
        load_model(tmp_path / "nothing")


def test_scores_stay_with_the_weights_they_are_of(
    tiny: TumorChainConfig, params: dict, tokenizer: Tokenizer, folder: Path
) -> None:
    scores = DomainScores("some", 1, None, {})
    write_evaluation(folder, load_model(folder).sha256, REAL, scores)
    values = tiny, PREPROCESS, "latest", params, tokenizer, True
    export(folder, *values, [(1_000_000, 4)])
    found = load_model(folder).measured
    assert (found.domains, found.training) == ({REAL: scores}, ((1_000_000, 4),))
    other = params | {"projector/linear1/bias": params["projector/linear1/bias"] + 1}
    export(folder, tiny, PREPROCESS, "latest", other, tokenizer, True)
    assert load_model(folder).measured == Measured()


def test_scores_survive_a_conversion_and_back(folder: Path, tmp_path: Path) -> None:
    sha256 = load_model(folder).sha256
    for name in MEASURED_FILES:
        (folder / name).write_text(name)
    convert("export", folder, tmp_path / "torch")
    convert("import", tmp_path / "torch", tmp_path / "back")
    for name in MEASURED_FILES:
        assert (tmp_path / "torch" / name).read_text() == name
        assert (tmp_path / "back" / name).read_text() == name
    assert weights_sha256(tmp_path / "back") == sha256  # so that they are still about these weights
