"""An object in a process of its own, and the memory that this process took."""

from functools import partial

import numpy as np
import pytest

from tumorchain_jax.bench.own_process import OwnProcess


@pytest.mark.system(haste=True)
def test_each_object_has_its_process_and_its_peak() -> None:
    with (
        OwnProcess(bytearray, b"abc") as small,
        OwnProcess(partial(np.ones, 300_000_000, "u1")) as large,
    ):
        assert small("decode") == "abc"
        assert large("sum") == 300_000_000
        assert 0.3 < large.peak_gb() - small.peak_gb() < 0.4
        with pytest.raises(IndexError, match="range"):
            small("pop", 5)
