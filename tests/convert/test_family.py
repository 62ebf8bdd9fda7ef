"""Tensors of a folder -> arrays: every one in its place, and nothing left out without a word."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, from_ours
from tumorchain_jax.weights.matching import Family, load_arrays
from tumorchain_jax.weights.tensor_files import read_file

LAYERS = 11  # "10" sorts before "2": the order of the layers is a number's
FAMILY = Family(
    "net",
    {},
    (
        (r"layers/(up|down)/kernel", r"net.{layer}.\1.weight", TRANSPOSE),
        (r"layers/(up|down)/bias", r"net.{layer}.\1.bias", KEEP),
        (r"norm/scale", r"norm.weight", KEEP),
        (r"head/kernel", r"head.weight", TRANSPOSE),
    ),
    {
        "layers/up/kernel": (LAYERS, 2, 3),
        "layers/up/bias": (LAYERS, 3),
        "layers/down/kernel": (LAYERS, 3, 2),
        "norm/scale": (2,),
        "head/kernel": (2, 5),
    },
)
Load = Callable[..., dict[str, np.ndarray]]


def weights() -> dict[str, np.ndarray]:
    """A state dict in which no two numbers are equal."""
    shapes: dict[str, tuple[int, ...]] = {f"net.{i}.up.weight": (3, 2) for i in range(LAYERS)}
    shapes |= {f"net.{i}.up.bias": (3,) for i in range(LAYERS)}
    shapes |= {f"net.{i}.down.weight": (2, 3) for i in range(LAYERS)}
    shapes |= {"norm.weight": (2,), "head.weight": (5, 2)}
    rng = np.random.default_rng(0)
    return {key: rng.random(shape, np.float32) for key, shape in shapes.items()}


@pytest.fixture
def load(save: Callable, tmp_path: Path) -> Load:
    def run(tensors: Mapping[str, np.ndarray], **changes: Any) -> dict[str, np.ndarray]:
        save(tmp_path / "model.safetensors", tensors)
        found = read_file(tmp_path / "model.safetensors")
        return load_arrays(tmp_path, replace(FAMILY, **changes), found)

    return run


def refused(load: Load, words: str, tensors: Mapping[str, np.ndarray], **changes: Any) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        load(tensors, **changes)


def test_layers_are_stacked_in_order_and_transposed(load: Load) -> None:
    theirs = weights()
    ours = load(theirs)
    for layer in range(LAYERS):
        kernel, bias = (ours[f"layers/up/{name}"][layer] for name in ("kernel", "bias"))
        np.testing.assert_array_equal(kernel, theirs[f"net.{layer}.up.weight"].T)
        np.testing.assert_array_equal(bias, theirs[f"net.{layer}.up.bias"])
    np.testing.assert_array_equal(ours["head/kernel"], theirs["head.weight"].T)
    np.testing.assert_array_equal(ours["norm/scale"], theirs["norm.weight"])


def test_round_trip(load: Load) -> None:
    theirs = weights()
    back = from_ours(FAMILY.table, unflatten(load(theirs)))
    assert back.keys() == theirs.keys()
    for key, value in back.items():
        assert value.flags.c_contiguous, key
        np.testing.assert_array_equal(value, theirs[key])


def test_missing_key_is_named(load: Load) -> None:
    theirs = weights()
    del theirs["net.7.up.bias"], theirs["head.weight"]
    words = "head.weight: found no such array, expected (5, 2)"
    refused(load, words, theirs)


def test_unexpected_key_is_named_unless_it_is_known(load: Load) -> None:
    theirs = weights() | {"net.11.up.bias": np.zeros(3), "tower.w": np.zeros(1)}
    refused(load, "net.11.up.bias: found (3,), expected no such array", theirs)
    refused(load, "net.11.up.bias: found (3,)", theirs, ignored=(r"tower\..*",))
    load(theirs, ignored=(r"tower\..*",), passthrough=(r"net\.11\..*",))


def test_ignored_key_that_is_wanted_is_still_wanted(load: Load) -> None:
    ours = load(weights(), ignored=(r".*",))
    np.testing.assert_array_equal(ours["norm/scale"], weights()["norm.weight"])
    refused(
        load,
        "head.weight: found no such array",
        {},
        ignored=(r".*",),
    )


def test_another_shape_is_named_and_never_broadcast(load: Load) -> None:
    wrong = weights() | {"net.3.up.weight": np.zeros((2, 3), np.float32)}
    refused(load, "net.3.up.weight: found (2, 3), expected (3, 2)", wrong)
    wrong = weights() | {"norm.weight": np.zeros(1, np.float32)}
    refused(load, "norm.weight: found (1,), expected (2,)", wrong)


def test_shorter_tensors_are_padded_where_the_family_says_so(load: Load) -> None:
    theirs = weights()
    theirs["net.3.up.weight"] = theirs["net.3.up.weight"][:2]
    ours = load(theirs, padded={"net.3.up.weight": (0, 2)})["layers/up/kernel"][3]
    np.testing.assert_array_equal(ours[:, :2], theirs["net.3.up.weight"].T)
    np.testing.assert_array_equal(ours[:, 2], 0)


def test_copy_must_equal_its_original(load: Load) -> None:
    copies = ((r"twin\.(.*)", r"\1"),)
    theirs = weights()
    load(theirs | {"twin.norm.weight": theirs["norm.weight"]}, copies=copies)
    other = theirs | {"twin.norm.weight": theirs["norm.weight"] + 1}
    refused(load, "twin.norm.weight: found other numbers than norm.weight", other, copies=copies)
