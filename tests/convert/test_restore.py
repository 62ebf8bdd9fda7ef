"""An imported checkpoint goes straight into any sharding, and is the same in all of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.path_rules import flatten

RESTORE = """
import json
import sys
from pathlib import Path

import jax
import numpy as np

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.path_rules import flatten

imported = Imported(Path(sys.argv[1]))


def place(spec, mesh):
    # The last axes that the mesh divides, from the back.
    names, left = [], [*mesh.shape.items()]
    for size in reversed(spec.shape):
        fits = bool(left) and size % left[-1][1] == 0
        names.append(left.pop()[0] if fits else None)
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*reversed(names)))
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding)


for number, shape in enumerate(json.loads(sys.argv[3])):
    devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
    mesh = jax.sharding.Mesh(devices, tuple("xy"[: len(shape)]))
    places = {path: place(spec, mesh) for path, spec in imported.arrays.specs.items()}
    flat = flatten(imported.restore(places))
    whole = {path: np.asarray(leaf, np.float32) for path, leaf in flat.items()}
    np.savez(Path(sys.argv[2]) / f"{number}.npz", **whole)
    indices = [{str(shard.index) for shard in leaf.addressable_shards} for leaf in flat.values()]
    print(max(map(len, indices)))
"""
MESHES = [(1,), (2, 2), (8,)]


@pytest.mark.system(haste=True)
def test_arrays_are_equal_on_every_mesh(imported: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESTORE, imported, tmp_path, json.dumps(MESHES)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "4", "8"], "something is cut into that many pieces"
    expected = flatten(Imported(imported).restore())
    for number in range(len(MESHES)):
        got = np.load(tmp_path / f"{number}.npz")
        assert sorted(got.files) == sorted(expected)
        for path, leaf in expected.items():
            np.testing.assert_array_equal(got[path], np.asarray(leaf, np.float32), err_msg=path)


def test_one_layer_is_read_without_the_others(imported: Path) -> None:
    """What is on disk is PyTorch's own bytes, a file for a layer."""
    opened = Imported(imported)
    key = "model.layers.1.mlp.down_proj.weight"
    [(_, values)] = opened.pieces(key)
    folder = imported / "params" / "decoder.layers.mlp.down_proj.kernel"
    assert (folder / "1.0.0").read_bytes() == values.tobytes()
    assert sorted(file.name for file in folder.iterdir()) == [".zarray", "0.0.0", "1.0.0"]
