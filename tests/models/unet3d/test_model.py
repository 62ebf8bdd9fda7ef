"""What tests/parity does not see: shapes, refusals, gradients, names of axes, names of keys."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.unet3d.convert import COPIES, table, with_copies
from tumorchain_jax.models.unet3d.model import ResidualBlock, UNet3D, UNet3DConfig, average
from tumorchain_jax.models.weight_map import canonical, from_ours

PLAIN = UNet3DConfig(
    in_channels=2,
    classes=3,
    features=(4, 8, 8),
    strides=((1, 1, 1), (1, 2, 2), (2, 2, 2)),
    kernels=((1, 3, 3), (3, 3, 3), (3, 3, 3)),
    encoder_blocks=(1, 2, 1),
    decoder_convs=(2, 1),
)
RESIDUAL = UNet3DConfig(
    in_channels=1,
    classes=2,
    features=(4, 8, 12),
    strides=((1, 1, 1), (2, 2, 2), (1, 1, 1)),
    kernels=((3, 3, 3), (3, 3, 3), (3, 3, 3)),
    encoder_blocks=(1, 2, 1),
    decoder_convs=(1, 1),
    residual=True,
)
BOTH = pytest.mark.parametrize("config", [PLAIN, RESIDUAL], ids=["plain", "residual"])


def tile(config: UNet3DConfig, *size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *(size or (4, 8, 8)), config.in_channels), jnp.float32)


def boxed(config: UNet3DConfig) -> dict:
    return jax.eval_shape(UNet3D(config).init, jax.random.key(0), tile(config))["params"]


def shapes(config: UNet3DConfig) -> dict:
    return nn.unbox(boxed(config))


def numbered(config: UNet3DConfig) -> dict:
    """Parameters that are all different."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.random(leaf.shape, np.float32), shapes(config))


@BOTH
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_logits_are_as_fine_as_the_tile(config: UNet3DConfig, dtype: jnp.dtype) -> None:
    network = UNet3D(config, dtype)
    logits = jax.eval_shape(network.apply, {"params": shapes(config)}, tile(config, 4, 8, 16))
    assert logits.shape == (2, 4, 8, 16, config.classes)
    assert logits.dtype == jnp.float32


@BOTH
def test_parameters_are_float32_and_every_axis_that_is_cut_has_a_name(config: UNet3DConfig) -> None:
    for path, leaf in flatten(boxed(config)).items():
        assert leaf.value.dtype == jnp.float32
        outputs = "classes" if "_head" in path else "channels"
        assert leaf.names == (*[None] * (leaf.value.ndim - 1), outputs), path


def test_tile_that_the_strides_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4, 8, 6\) voxels, expected multiples of \(2, 4, 4\)"):
        jax.eval_shape(UNet3D(PLAIN).init, jax.random.key(0), tile(PLAIN, 4, 8, 6))


def test_wrong_shape_or_type_is_refused_at_the_door() -> None:
    """The tests check every annotated shape at run time (setup.cfg)."""
    with pytest.raises(TypeCheckError, match="x"):
        UNet3D(PLAIN).init(jax.random.key(0), jnp.zeros((4, 8, 8, 2)))
    with pytest.raises(TypeCheckError, match="x"):
        UNet3D(PLAIN).init(jax.random.key(0), jnp.zeros((1, 4, 8, 8, 2), jnp.int32))


def test_pooling_takes_the_mean_of_blocks() -> None:
    x = np.random.default_rng(0).random((2, 4, 6, 3, 5), np.float32)
    got = average(jnp.asarray(x), (2, 3, 1))
    assert got.shape == (2, 2, 2, 3, 5)
    np.testing.assert_allclose(got[1, 1, 0, 2], x[1, 2:4, 0:3, 2].mean((0, 1)), rtol=1e-6)


@BOTH
def test_what_learns(config: UNet3DConfig) -> None:
    """All but what changes nothing: biases before a norm, and the heads of coarser stages."""
    network = UNet3D(config)
    x = jax.random.normal(jax.random.key(1), tile(config).shape)

    def loss(params: dict) -> jax.Array:
        logits = network.apply({"params": params}, x)
        return jnp.square(logits - x[..., :1]).mean()

    gradients = flatten(jax.jit(jax.grad(loss))(numbered(config)))
    finest = len(config.features) - 2
    for path, gradient in gradients.items():
        idle = re.search(r"(conv\d|block\d/conv\d|stem)/bias$|_head", path)
        learns = not idle or f"stage{finest}_head" in path
        assert np.any(gradient != 0) == learns, path


def test_residual_block_starts_as_its_shortcut() -> None:
    block, x = ResidualBlock(4, (3, 3, 3)), jax.random.normal(jax.random.key(1), (1, 2, 4, 4, 4))
    y, _ = jax.jit(block.init_with_output)(jax.random.key(0), x)
    np.testing.assert_allclose(y, jax.nn.leaky_relu(x, 0.01), atol=1e-6)


@BOTH
def test_there_and_back(config: UNet3DConfig) -> None:
    ours, rows = numbered(config), table(config)
    theirs = from_ours(rows, ours)
    named = with_copies(theirs)
    assert len(named) > 2 * len(theirs)
    for key, leaf in named.items():
        np.testing.assert_array_equal(leaf, theirs[canonical(COPIES, key)], err_msg=key)


def test_keys_and_layouts() -> None:
    theirs = from_ours(table(PLAIN), numbered(PLAIN))
    named = with_copies(theirs)
    assert theirs["encoder.stages.1.0.convs.0.conv.weight"].shape == (8, 4, 3, 3, 3)
    assert theirs["encoder.stages.0.0.convs.0.conv.weight"].shape == (4, 2, 1, 3, 3)
    # Of a transposed convolution the inputs come first.
    assert theirs["decoder.transpconvs.1.weight"].shape == (8, 4, 1, 2, 2)
    assert theirs["decoder.seg_layers.0.weight"].shape == (3, 8, 1, 1, 1)
    key = "stages.2.0.convs.0"
    for prefix in ("encoder", "decoder.encoder"):
        for name, place in (("conv", 0), ("norm", 1)):
            copy = named[f"{prefix}.{key}.all_modules.{place}.bias"]
            assert copy is theirs[f"encoder.{key}.{name}.bias"]
    assert not [name for name in named if name.startswith("decoder.decoder")]


def test_shortcut_is_counted_after_its_pooling() -> None:
    theirs = from_ours(table(RESIDUAL), numbered(RESIDUAL))
    assert "encoder.stages.1.blocks.0.skip.1.conv.weight" in theirs
    assert "encoder.stages.2.blocks.0.skip.0.norm.bias" in theirs
    assert not [key for key in theirs if "skip" in key and key.endswith("conv.bias")]
    assert not [key for key in theirs if key.startswith("encoder.stages.0.blocks.0.skip")]
