import jax
import numpy as np
import pytest

from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Table, from_ours, sources

TABLE: Table = (
    (r"layers/(up|down)/kernel", r"net.{layer}.\1.weight", TRANSPOSE),
    (r"norm/scale", r"norm.weight", KEEP),
    (r"head/kernel", r"head.weight", TRANSPOSE),
)
LIKE = {
    "layers/up/kernel": jax.ShapeDtypeStruct((11, 2, 3), np.float32),
    "norm/scale": jax.ShapeDtypeStruct((2,), np.float32),
    "head/kernel": jax.ShapeDtypeStruct((2, 5), np.float32),
}


def test_sources_name_one_key_per_layer_and_its_shape() -> None:
    found = sources(TABLE, LIKE)
    assert found["layers/up/kernel"].keys == [f"net.{i}.up.weight" for i in range(11)]
    assert found["layers/up/kernel"].their_shape((11, 2, 3)) == (3, 2)
    assert found["norm/scale"].their_shape((2,)) == (2,)


def test_layers_come_apart_and_are_transposed() -> None:
    kernel = np.arange(66.0).reshape(11, 2, 3)
    theirs = from_ours(TABLE[:1], {"layers": {"up": {"kernel": kernel}}})
    np.testing.assert_array_equal(theirs["net.10.up.weight"], kernel[10].T)
    assert theirs["net.10.up.weight"].flags.c_contiguous


def test_parameter_that_no_row_names_is_an_error() -> None:
    with pytest.raises(ValueError, match="'head/kernel' is named by 0 rows"):
        sources(TABLE[:-1], LIKE)


def test_parameter_that_two_rows_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="is named by 2 rows"):
        sources((*TABLE, (r"head/.*", r"other.weight", KEEP)), LIKE)


def test_key_that_would_fill_two_parameters_is_an_error() -> None:
    table = (*TABLE[:-1], (r"head/kernel", r"norm.weight", TRANSPOSE))
    with pytest.raises(ValueError, match=r"uses twice: \['norm.weight'\]"):
        sources(table, LIKE)


def test_layers_can_be_counted_from_one() -> None:
    """A stack without the first layer, whose keys have another row."""
    table = ((r"first", r"net.0.scale", KEEP), (r"rest", r"net.{layer+1}.scale", KEEP))
    ours = {"first": np.float32([0, 0]), "rest": np.float32([[i, -i] for i in range(1, 11)])}
    theirs = from_ours(table, ours)
    assert theirs.keys() == {f"net.{i}.scale" for i in range(11)}
    assert all(theirs[f"net.{i}.scale"].tolist() == [i, -i] for i in range(11))
