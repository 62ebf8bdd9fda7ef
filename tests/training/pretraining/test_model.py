import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict
from flax.linen import meta

from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.model import (
    NANO,
    NANO_LENS,
    TumorChainConfig,
    abstract_params,
)
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig, patchify
from tumorchain_jax.training.pretraining.model import ABNORMAL, PatchClassifier, classify_patches
from tumorchain_jax.training.pretraining.train import ATTENTION_OUT, PRETRAINED

PARTS = ("kernel", "bias")
TINY = ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 2, 2)
LABELS = FrozenDict({"organ": 57, "found": 8})
CONFIG = TumorChainConfig(TINY, Qwen2Config(64, 24, 32, 1, 2, 1, 12, True))
MODEL = PatchClassifier(CONFIG, LABELS)


def _params(volume: jax.Array) -> dict[str, jax.Array]:
    params = flatten(meta.unbox(jax.jit(MODEL.init)(jax.random.key(1), volume))["params"])
    # As if trained: at first, what the projector lets through is small.
    return {path: 30 * x if path.startswith("projector") else x for path, x in params.items()}


def test_logits_of_every_patch() -> None:
    volume = jax.random.uniform(jax.random.key(0), (2, 8, 16, 16))
    labels = jax.jit(partial(run, MODEL))(unflatten(_params(volume)), volume)
    assert {label: logits.shape for label, logits in labels.items()} == {
        "organ": (2, 8, 57),
        "found": (2, 8, 8),
    }


def test_single_patch_is_a_patch_of_a_scan_without_attention() -> None:
    volume = jax.random.uniform(jax.random.key(0), (1, 8, 16, 16))
    params = _params(volume)
    patches = patchify(volume, TINY.patch).reshape(8, *TINY.patch)
    numbers = jnp.array([6, 1, 3])

    classify, read = jax.jit(partial(classify_patches, MODEL)), jax.jit(partial(run, MODEL))

    def both() -> list[tuple[jax.Array, jax.Array]]:
        alone = classify(params, patches[numbers], numbers)
        among = read(unflatten(params), volume)
        return [(alone[label], among[label][0, numbers]) for label in LABELS]

    assert all(np.abs(a - b).max() > 1e-3 for a, b in both())

    params |= {path: 0 * leaf for path, leaf in params.items() if re.fullmatch(ATTENTION_OUT, path)}
    for found, expected in both():
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("config", [NANO, NANO_LENS], ids=["nano", "lens"])
def test_what_is_handed_on_is_that_of_the_model(config: TumorChainConfig) -> None:
    """What pretraining leaves must fit into the model, name by name."""
    labels = LABELS.copy({ABNORMAL: 2}) if config.crop else LABELS
    parts = PRETRAINED if config.crop else PRETRAINED[:2]

    def init(key: jax.Array) -> dict:
        variables = PatchClassifier(config, labels).init(key, jnp.zeros((1, *config.encoder.image)))
        return flatten(meta.unbox(variables)["params"])

    classifier = {p: x.shape for p, x in jax.eval_shape(init, jax.random.key(0)).items()}
    model = {p: x.shape for p, x in abstract_params(config).items()}
    ours = {p: x for p, x in classifier.items() if p.startswith(PRETRAINED)}
    assert ours == {p: x for p, x in model.items() if p.startswith(parts)}
    assert set(classifier) - set(ours) == {f"{label}/{p}" for label in LABELS for p in PARTS}
