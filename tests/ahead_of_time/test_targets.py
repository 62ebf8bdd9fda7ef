import pytest

from tumorchain_jax.ahead_of_time.targets import CHIPS, read_target
from tumorchain_jax.core.errors import InputError


@pytest.mark.parametrize(
    ("name", "kind", "size", "slices"),
    [
        ("v5e-1", "v5e", 1, 1),
        ("v5e-16", "v5e", 16, 1),
        ("v5p-32", "v5p", 32, 1),
        ("v6e-64", "v6e", 64, 1),
        ("tpu7x-8", "tpu7x", 8, 1),
        ("4xtpu7x-64", "tpu7x", 64, 4),
        ("2xv5e-16", "v5e", 16, 2),
        ("h100-1", "h100", 1, 1),
        ("h100-32", "h100", 32, 1),
    ],
)
def test_names_are_the_vendors(name: str, kind: str, size: int, slices: int) -> None:
    target = read_target(name)
    assert (target.name, target.chip) == (name, CHIPS[kind])
    assert (target.size, target.slices) == (size, slices)


@pytest.mark.parametrize(
    "name",
    ["v5e", "v5e-12", "v5p-9", "v5p-4", "v4-8", "h100-12", "2xh100-8", "0xv5e-16", "V5E-16", ""],
)
def test_machines_that_there_are_not_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="v5e-N, N of 1, 4, 8, 16") as error:
        read_target(name)
    assert error.value.found == name
    assert "\n" not in str(error.value)


def test_v5p_has_two_cores_per_chip() -> None:
    """https://cloud.google.com/tpu/docs/v5p: v5p-128 is 4 x 4 x 4 chips."""
    chip = CHIPS["v5p"]
    assert chip.shapes[128 // chip.per_chip] == "4x4x4"
