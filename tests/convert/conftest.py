"""Published checkpoints so small that tests make their own, and one of them imported.

The dicts are shared by all tests: copy before changing.
"""

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.weights.tensor_files import TensorWriter

Tensors = dict[str, np.ndarray]
Save = Callable[[Path, Mapping[str, np.ndarray]], None]
Write = Callable[..., Path]
Change = Callable[[dict, dict], Any]
Changed = Callable[[Change], Path]
LAYERS = ("model.layers.0.", "model.layers.1.")
PROJECTIONS = {
    "self_attn.q_proj": (8, 8),
    "self_attn.k_proj": (4, 8),
    "self_attn.v_proj": (4, 8),
    "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (12, 8),
    "mlp.up_proj": (12, 8),
    "mlp.down_proj": (8, 12),
}


def numbers(shapes: Mapping[str, tuple[int, ...]], dtype: Any) -> Tensors:
    """Tensors of these shapes; no two numbers in them are equal."""
    tensors, start = {}, 1
    for key, shape in shapes.items():
        bits = np.arange(start, start + prod(shape), dtype=np.uint16)
        tensors[key] = bits.view(dtype).reshape(shape)
        start += prod(shape)
    return tensors


@pytest.fixture(scope="session")
def fields() -> dict[str, Any]:
    """The config.json of a Qwen2.5-VL that could hardly be smaller."""
    return {
        "model_type": "qwen2_5_vl",
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
    }


@pytest.fixture(scope="session")
def tensors() -> Tensors:
    """Its weights, and one of its image tower, which is carried."""
    shapes: dict[str, tuple[int, ...]] = {"visual.merger.weight": (3, 2)}
    shapes["model.embed_tokens.weight"] = (10, 8)
    for layer in LAYERS:
        for name, shape in PROJECTIONS.items():
            shapes[f"{layer}{name}.weight"] = shape
            if name.endswith(("q_proj", "k_proj", "v_proj")):
                shapes[f"{layer}{name}.bias"] = shape[:1]
        shapes[f"{layer}input_layernorm.weight"] = (8,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (8,)
    shapes |= {"model.norm.weight": (8,), "lm_head.weight": (10, 8)}
    return numbers(shapes, ml_dtypes.bfloat16)


@pytest.fixture(scope="session")
def adapter_fields() -> dict[str, Any]:
    """The adapter_config.json of a LoRA over two projections of that model."""
    targets = ["q_proj", "v_proj"]
    return {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": targets, "bias": "none"}


@pytest.fixture(scope="session")
def adapter_tensors() -> Tensors:
    """Its weights."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in LAYERS:
        for name, outputs in (("q_proj", 8), ("v_proj", 4)):
            module = f"base_model.model.{layer}self_attn.{name}"
            shapes |= {f"{module}.lora_A.weight": (2, 8), f"{module}.lora_B.weight": (outputs, 2)}
    return numbers(shapes, np.float16)


@pytest.fixture(scope="session")
def save() -> Save:
    """Writes one file of tensors."""

    def write(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
        with path.open("wb") as stream:
            writer = TensorWriter(stream, {key: (x.dtype, x.shape) for key, x in tensors.items()})
            for key, values in tensors.items():
                writer.write(key, 0, values)

    return write


@pytest.fixture(scope="session")
def write_model(save: Save) -> Write:
    """Writes a model's folder, its tensors in two files by turns."""

    def write(folder: Path, fields: Mapping[str, Any], tensors: Tensors) -> Path:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(fields))
        (folder / "generation_config.json").write_text('{"do_sample": false}')
        names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        where = {key: names[number % 2] for number, key in enumerate(tensors)}
        for name in names:
            save(folder / name, {key: x for key, x in tensors.items() if where[key] == name})
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
        return folder

    return write


@pytest.fixture(scope="session")
def write_adapter(save: Save) -> Write:
    """Writes an adapter's folder."""

    def write(folder: Path, fields: Mapping[str, Any], tensors: Tensors) -> Path:
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps(fields))
        save(folder / "adapter_model.safetensors", tensors)
        return folder

    return write


@pytest.fixture(scope="session")
def source(
    fields: dict, tensors: Tensors, write_model: Write, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The model's folder. Not to be changed."""
    return write_model(tmp_path_factory.mktemp("published") / "source", fields, tensors)


@pytest.fixture(scope="session")
def imported(source: Path) -> Path:
    """What is imported from it in one go. Not to be changed."""
    import_folder(source, source.with_name("imported"))
    return source.with_name("imported")


@pytest.fixture
def model(fields: dict, tensors: Tensors, write_model: Write, tmp_path: Path) -> Changed:
    """A folder of the model after a change of its configuration or tensors."""

    def write(change: Change) -> Path:
        own_fields, own_tensors = {**fields}, {**tensors}
        change(own_fields, own_tensors)
        return write_model(tmp_path / "model", own_fields, own_tensors)

    return write


@pytest.fixture
def adapter(
    adapter_fields: dict, adapter_tensors: Tensors, write_adapter: Write, tmp_path: Path
) -> Changed:
    """A folder of the adapter after a change of its configuration or tensors."""

    def write(change: Change) -> Path:
        own_fields, own_tensors = {**adapter_fields}, {**adapter_tensors}
        change(own_fields, own_tensors)
        return write_adapter(tmp_path / "adapter", own_fields, own_tensors)

    return write


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


@pytest.fixture
def refuse(outputs: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Run a conversion that must be refused with these words."""

    def run(words: tuple[str, ...], what: str, source: Path, *options: object) -> None:
        arguments = ["-i", source, "-o", outputs / "dst", *options]
        before = sorted(outputs.rglob("*"))
        code = main(["convert", what, *map(str, arguments)])
        said = capfd.readouterr()
        assert code == 2, said.err
        assert said.out == ""
        assert said.err.startswith("tumorchain: error: ")
        assert said.err.count("\n") == 1
        paths = max((len(str(path)) for path in (source, outputs, *options)), default=0)
        assert len(said.err) <= 350 + paths
        for word in words:
            assert word in said.err
        assert sorted(outputs.rglob("*")) == before

    return run
