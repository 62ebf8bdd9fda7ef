"""Image classifiers without timm: axes, JSON, heads, patches, batch statistics."""

import json
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.families import (
    IMAGE_CLASSIFIERS,
    image_classifier,
    image_from_dict,
    image_to_dict,
)
from tumorchain_jax.models.image.beit.model import BeitConfig
from tumorchain_jax.models.image.layers import STATISTICS, BatchNorm, PatchEmbedding, drop_rates
from tumorchain_jax.models.image.pyramid.model import PyramidConfig
from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.models.image.swin.model import SwinConfig
from tumorchain_jax.models.image.vit.model import ViTConfig
from tumorchain_jax.parallel.partition import RULES

TINY: dict[str, Any] = {
    "resnet": ResNetConfig((2, 1), width=4, classes=3),
    "swin": SwinConfig((56, 56), 4, 8, (2, 2), (2, 4), classes=3),
    "vit": ViTConfig((32, 48), 16, 8, 16, 2, 2, classes=3),
    "beit": BeitConfig((32, 48), 16, 8, 16, 2, 2, classes=3),
    "pyramid": PyramidConfig((1, 1), 4, 4, classes=3),
}
FAMILIES = pytest.mark.parametrize("name", TINY)


def abstract(config: Any) -> tuple[nn.Module, Any, Any]:
    module = image_classifier(config).build(config)
    height, width = getattr(config, "image", (33, 47))
    images = jax.ShapeDtypeStruct((2, height, width, config.channels), jnp.float32)
    return module, images, jax.eval_shape(module.init, jax.random.key(0), images)


def test_every_registered_family_is_tested() -> None:
    assert TINY.keys() == IMAGE_CLASSIFIERS.keys()


@FAMILIES
def test_configuration_survives_json(name: str) -> None:
    values = json.loads(json.dumps(image_to_dict(TINY[name])))
    assert values.get("family", "resnet") == name  # the first goes without saying
    assert image_from_dict(values) == TINY[name]


@FAMILIES
def test_every_axis_has_a_rule(name: str) -> None:
    _, _, variables = abstract(TINY[name])
    known = {axis for axis, _ in RULES}
    for path, leaf in flatten(variables["params"]).items():
        assert len(leaf.names) == leaf.value.ndim, path
        assert {axis for axis in leaf.names if axis} <= known, path


@FAMILIES
def test_logits_and_features_have_the_sizes_of_the_configuration(name: str) -> None:
    module, images, variables = abstract(TINY[name])
    logits, features = jax.eval_shape(module.apply, nn.meta.unbox(variables), images)
    assert logits.shape == (2, 3)
    assert features.shape == (2, TINY[name].features)


def test_batch_norm_normalizes_and_remembers_the_unbiased_variance() -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, (2, 3, 4, 5)).astype(np.float32)
    variables = nn.meta.unbox(BatchNorm().init(jax.random.key(0), jnp.asarray(x), True))
    y, new = BatchNorm().apply(variables, jnp.asarray(x), True, mutable=[STATISTICS])
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(y.std((0, 1, 2)), 1, rtol=1e-4)
    flat = x.reshape(-1, 5)
    statistics = new[STATISTICS]
    np.testing.assert_allclose(statistics["running_mean"], 0.1 * flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(
        statistics["running_var"], 0.9 + 0.1 * flat.var(0, ddof=1), rtol=1e-5
    )


def test_patches_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="expected multiples of 4"):
        PatchEmbedding(8, 4).init(jax.random.key(0), jnp.zeros((1, 8, 10, 1)))


def test_stochastic_depth_grows_from_zero_to_its_rate() -> None:
    assert drop_rates(0.2, 3) == pytest.approx([0.0, 0.1, 0.2])
    assert drop_rates(0.2, 1) == [0.0]
