import re

import numpy as np
import pytest

from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, from_ours, to_ours

TABLE = (
    (r"layers/(up|down)/kernel", r"net.{layer}.\1.weight", TRANSPOSE),
    (r"layers/(up|down)/bias", r"net.{layer}.\1.bias", KEEP),
    (r"norm/scale", r"norm.weight", KEEP),
    (r"head/kernel", r"head.weight", TRANSPOSE),
)
LAYERS = 11  # "10" sorts before "2": the order of the layers is a number's


def weights() -> dict[str, np.ndarray]:
    """A state dict in which no two numbers are equal."""
    shapes = {f"net.{i}.up.weight": (3, 2) for i in range(LAYERS)}
    shapes |= {f"net.{i}.up.bias": (3,) for i in range(LAYERS)}
    shapes |= {f"net.{i}.down.weight": (2, 3) for i in range(LAYERS)}
    shapes |= {"norm.weight": (2,), "head.weight": (5, 2)}
    rng = np.random.default_rng(0)
    return {key: rng.random(shape, np.float32) for key, shape in shapes.items()}


def like() -> dict:
    up = {"kernel": np.empty((LAYERS, 2, 3)), "bias": np.empty((LAYERS, 3))}
    layers = {"up": up, "down": {"kernel": np.empty((LAYERS, 3, 2))}}
    return {
        "layers": layers,
        "norm": {"scale": np.empty(2)},
        "head": {"kernel": np.empty((2, 5))},
    }


def refused(problem: str, theirs: dict, ignore: tuple[str, ...] = ()) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        to_ours(TABLE, theirs, like(), ignore)


def test_layers_are_stacked_in_order_and_transposed() -> None:
    theirs = weights()
    ours = to_ours(TABLE, theirs, like())
    assert ours["layers"]["up"]["kernel"].shape == (LAYERS, 2, 3)
    for layer in range(LAYERS):
        kernel, bias = (ours["layers"]["up"][name][layer] for name in ("kernel", "bias"))
        np.testing.assert_array_equal(kernel, theirs[f"net.{layer}.up.weight"].T)
        np.testing.assert_array_equal(bias, theirs[f"net.{layer}.up.bias"])
    np.testing.assert_array_equal(ours["head"]["kernel"], theirs["head.weight"].T)
    np.testing.assert_array_equal(ours["norm"]["scale"], theirs["norm.weight"])


def test_there_and_back() -> None:
    theirs = weights()
    back = from_ours(TABLE, to_ours(TABLE, theirs, like()))
    assert back.keys() == theirs.keys()
    for key, value in back.items():
        assert value.flags.c_contiguous, key
        np.testing.assert_array_equal(value, theirs[key])


def test_a_missing_key_is_named() -> None:
    theirs = weights()
    del theirs["net.7.up.bias"], theirs["head.weight"]
    refused("missing head.weight; missing net.7.up.bias", theirs)


def test_an_unexpected_key_is_named_unless_ignored() -> None:
    theirs = weights() | {"net.11.up.bias": np.zeros(3), "tower.w": np.zeros(1)}
    refused("unexpected net.11.up.bias; unexpected tower.w", theirs)
    refused("unexpected net.11.up.bias", theirs, (r"tower\..*",))
    to_ours(TABLE, theirs, like(), (r"tower\..*", r"net\.11\..*"))


def test_an_ignored_key_that_is_wanted_is_still_wanted() -> None:
    ours = to_ours(TABLE, weights(), like(), (r".*",))
    np.testing.assert_array_equal(ours["norm"]["scale"], weights()["norm.weight"])
    refused("missing norm.weight", {}, (r".*",))


def test_another_shape_is_named_and_never_broadcast() -> None:
    wrong = {"net.3.up.weight": np.zeros((2, 3)), "norm.weight": np.zeros(1)}
    refused("net.3.up.weight: (3, 2) in our layout, not (2, 3)", weights() | wrong)
    refused("norm.weight: (1,) in our layout, not (2,)", weights() | wrong)


def test_a_parameter_that_no_row_names_is_an_error() -> None:
    with pytest.raises(ValueError, match="'head/kernel' is named by 0 rows"):
        to_ours(TABLE[:-1], weights(), like())


def test_a_parameter_that_two_rows_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="is named by 2 rows"):
        to_ours((*TABLE, (r"head/.*", r"other.weight", KEEP)), weights(), like())


def test_a_key_that_would_fill_two_parameters_is_an_error() -> None:
    table = (*TABLE[:-1], (r"head/kernel", r"norm.weight", TRANSPOSE))
    with pytest.raises(ValueError, match=r"uses twice: \['norm.weight'\]"):
        to_ours(table, weights(), like())


def test_layers_can_be_counted_from_one() -> None:
    """A stack without the first layer, whose keys have another row."""
    table = ((r"first", r"net.0.scale", KEEP), (r"rest", r"net.{layer+1}.scale", KEEP))
    theirs = {f"net.{i}.scale": np.float32([i, -i]) for i in range(LAYERS)}
    ours = to_ours(table, theirs, {"first": np.empty(2), "rest": np.empty((LAYERS - 1, 2))})
    assert ours["rest"][:, 0].tolist() == [*range(1, LAYERS)]
    back = from_ours(table, ours)
    assert back.keys() == theirs.keys()
    assert all(np.array_equal(back[key], theirs[key]) for key in theirs)
