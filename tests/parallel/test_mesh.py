from types import SimpleNamespace
from typing import Any

import jax
import pytest
from jax.sharding import AxisType

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.parallel import mesh
from tumorchain_jax.parallel.mesh import AXES, make_mesh, mesh_shape


@pytest.mark.parametrize(
    ("sizes", "devices", "expected"),
    [
        ({}, 1, (1, 1, 1, 1)),
        ({"fsdp": -1}, 8, (1, 8, 1, 1)),
        ({"data": 2, "fsdp": -1, "tensor": 4}, 32, (2, 4, 4, 1)),
        ({"sequence": 4, "data": 2}, 8, (2, 1, 1, 4)),
        ({"data": 1, "fsdp": -1, "tensor": 1, "sequence": 1}, 1, (1, 1, 1, 1)),
    ],
)
def test_mesh_gives_the_rest_to_one_axis(sizes: dict, devices: int, expected: tuple) -> None:
    assert mesh_shape(sizes, devices) == expected


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ({"data": 3}, "data 3, fsdp 1, tensor 1, sequence 1"),
        ({"data": 4}, "data 4"),
        ({"fsdp": -1, "tensor": 3}, "fsdp -1, tensor 3"),
        ({"fsdp": -1, "tensor": -1}, "fsdp -1, tensor -1"),
        ({"tensor": 0}, "tensor 0"),
        ({"tensor": -2}, "tensor -2"),
        ({"experts": 8}, "an axis experts"),
    ],
)
def test_sizes_that_do_not_multiply_to_the_devices_are_refused(sizes: dict, found: str) -> None:
    with pytest.raises(InputError) as error:
        mesh_shape(sizes, 8)
    assert found in error.value.found
    assert "the 8 devices" in error.value.expected


def test_axes_are_auto_for_linen_asserts_on_others() -> None:
    made = make_mesh({"fsdp": -1})
    assert made.axis_names == AXES
    assert {*made.axis_types} == {AxisType.Auto}
    assert made.size == len(jax.devices())


@pytest.mark.parametrize(
    ("sizes", "within", "between"),
    [
        ({"data": 2, "fsdp": 4}, [1, 4, 1, 1], [2, 1, 1, 1]),
        ({"data": 1, "fsdp": 8}, [1, 4, 1, 1], [1, 2, 1, 1]),
        ({"data": 1, "fsdp": 1, "tensor": 8}, [1, 1, 4, 1], [1, 1, 2, 1]),
    ],
)
def test_mesh_outermost_axis_spans_the_slices(
    sizes: dict, within: list, between: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def hybrid(*shapes: Any, **_: Any) -> Any:
        asked.extend(shapes[:2])
        raise InterruptedError

    monkeypatch.setattr(mesh.mesh_utils, "create_hybrid_device_mesh", hybrid)
    devices = [SimpleNamespace(slice_index=number // 4) for number in range(8)]
    with pytest.raises(InterruptedError):
        make_mesh(sizes, devices)
    assert asked == [within, between]


def test_slices_that_no_axis_can_span_are_refused() -> None:
    devices = [SimpleNamespace(slice_index=number % 2) for number in range(9)]
    with pytest.raises(InputError, match="the 2 slices divide"):
        make_mesh({"data": 1, "fsdp": 9}, devices)
