import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.models.layers.embedding import look_up

ON_MESH = Path(__file__).with_name("look_up_on_mesh.py")


def test_without_a_mesh_rows_are_taken() -> None:
    table = jnp.arange(12.0).reshape(4, 3)
    found = jax.jit(look_up)(table, jnp.array([[3, 0]]))
    assert found.tolist() == [[[9.0, 10.0, 11.0], [0.0, 1.0, 2.0]]]


def test_on_a_mesh_too_and_no_device_sees_all_of_the_table() -> None:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, str(ON_MESH)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(0)
    table = rng.normal(size=(24, 16)).astype(np.float32)
    tokens = rng.integers(0, 24, (8, 4))
    weights = rng.normal(size=(8, 4, 16)).astype(np.float32)
    gradient = np.zeros_like(table)
    np.add.at(gradient, tokens, weights)
    data_alone, *cut = json.loads(done.stdout)
    for found in (data_alone, *cut):
        np.testing.assert_array_equal(np.float32(found["rows"]), table[tokens])
        np.testing.assert_allclose(np.float32(found["gradient"]), gradient, rtol=0, atol=1e-6)
    assert data_alone["whole"]
    assert not any(found["whole"] for found in cut)
