"""Which axis of what is cut by which axis of the mesh; `shardings.json` is kept by

python tests/parallel/test_partition.py > tests/parallel/shardings.json
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import (
    NANO,
    TUMORCHAIN_3B,
    TUMORCHAIN_7B,
    TumorChainConfig,
    abstract_params,
    attention_heads,
    logical_axes,
)
from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig
from tumorchain_jax.parallel.mesh import AXES
from tumorchain_jax.parallel.partition import RULES, param_shardings, rules_for, state_shardings
from tumorchain_jax.training.state import TrainState

KEPT = Path(__file__).with_name("shardings.json")
ADAPTERS = LoRA((r".*/(q_proj|v_proj|down_proj)", r"encoder/.*/qkv"))
ACTIVATIONS = {"batch", "length", "cells", "attention_heads", "projected_heads"}
ACTIVATIONS |= {"scored_batch", "scored_vocab"}
MODELS = {
    "3B": TUMORCHAIN_3B,
    "7B": TUMORCHAIN_7B,
    "7B with LoRA": replace(TUMORCHAIN_7B, lora=ADAPTERS),
}


def place(config: TumorChainConfig, *args: Any) -> dict[str, NamedSharding]:
    return param_shardings(logical_axes(config), attention_heads(config), *args)


def mesh_of(**sizes: int) -> Any:
    shape = tuple(sizes.get(axis, 1) for axis in AXES)
    return AbstractMesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def shardings() -> dict[str, dict[str, str]]:
    mesh = mesh_of(data=2, fsdp=4, tensor=2, sequence=2)
    return {
        name: {path: str(leaf.spec) for path, leaf in place(config, mesh).items()}
        for name, config in MODELS.items()
    }


def test_shardings_are_as_they_were() -> None:
    assert shardings() == json.loads(KEPT.read_text())


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_fsdp_and_tensor_cut_nearly_all_of_the_model(config: TumorChainConfig) -> None:
    mesh = mesh_of(fsdp=8, tensor=2)
    shapes, whole, cut = abstract_params(config), 0, 0.0
    for path, sharding in place(config, mesh).items():
        size = shapes[path].size
        whole += size
        parts = [mesh.shape[axis] for axis in sharding.spec if axis]
        cut += size / (parts[0] if len(parts) == 1 else 16 if parts else 1)
    assert cut / whole < 1.05 / 16


@pytest.mark.parametrize(
    ("sizes", "rules", "field", "message"),
    [
        ({"tensor": 3}, RULES, "encoder heads", "an axis of 2, expected a multiple of 3"),
        ({"fsdp": 3}, RULES, "decoder/embed_tokens/embedding", "an axis of 128"),
        ({}, RULES[1:], "input_layernorm/weight", "a logical axis layers without a rule"),
        ({}, [*RULES, ("experts", None)], "partition rules", "a rule for experts"),
        ({}, [("mlp", "model"), *RULES], "mlp/down_proj/kernel", "mesh axis model"),
        ({}, [("mlp", "fsdp"), *RULES], "mlp/down_proj/kernel", "cut twice"),
    ],
)
def test_partition_that_does_not_divide_is_refused_by_name(
    sizes: dict, rules: Any, field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        place(NANO, mesh_of(**sizes), rules)
    assert field in error.value.field


def test_few_key_value_heads_are_on_every_device() -> None:
    """nano has one: with it, tensor parallelism can be tried on a laptop."""
    heads = attention_heads(NANO)
    assert rules_for(heads, mesh_of(tensor=1)) is RULES
    rules = rules_for(heads, mesh_of(tensor=2))
    assert dict(rules)["projected_heads"] is None
    key = place(NANO, mesh_of(tensor=2), rules)["decoder/layers/self_attn/k_proj/kernel"]
    assert "tensor" in str(key.spec)


def test_optimizer_moments_lie_with_their_parameters() -> None:
    places = place(NANO, mesh_of(fsdp=2))
    path, table = "decoder/embed_tokens/embedding", jax.ShapeDtypeStruct((1024, 128), "float32")
    count: Any = jax.ShapeDtypeStruct((), "int32")
    state: Any = TrainState(count, {path: table}, {}, (count, {"mu": {path: table}}))
    found = state_shardings(state, places)
    assert found.optimizer[1]["mu"][path] == found.trained[path] == places[path]
    assert "fsdp" in str(places[path].spec)
    assert found.optimizer[0].spec == found.step.spec == jax.P()


def test_rules_are_each_used_by_some_model() -> None:
    patch = jax.ShapeDtypeStruct((1, 8, 8, 8, 1), "float32")
    network = UNet3DConfig(1, 3, (4, 8), ((1, 1, 1), (2, 2, 2)), ((3, 3, 3),) * 2, (1, 1), (1,))
    boxes = jax.eval_shape(UNet3D(network).init, jax.random.key(0), patch)["params"]
    models = (*MODELS.values(), replace(TUMORCHAIN_7B, roi_source="crop"))
    axes = [names for model in models for names, _ in logical_axes(model).values()]
    axes += [box.names for box in flatten(boxes).values()]
    used = {name for names in axes for name in names}
    assert {name for name, _ in RULES} - used <= ACTIVATIONS


if __name__ == "__main__":
    print(json.dumps(shardings(), indent=1))
