import re

import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import meta

from tumorchain_jax.models.cell_tagger import CellTagger, tag_alone
from tumorchain_jax.models.tumorchain import NANO, abstract_params, run
from tumorchain_jax.models.vit3d.model import ViT3DConfig, patchify
from tumorchain_jax.path_rules import flatten, unflatten
from tumorchain_jax.training.encoder import ATTENTION_OUT

PARTS = ("kernel", "bias")
TINY = ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 2, 2)
MODEL = CellTagger(TINY, labels=57, sites=5)


def _params(volume: jax.Array) -> dict[str, jax.Array]:
    return flatten(meta.unbox(MODEL.init(jax.random.key(1), volume))["params"])


def test_tags_every_cell() -> None:
    volume = jax.random.uniform(jax.random.key(0), (2, 8, 16, 16))
    organ, lesion = run(MODEL, unflatten(_params(volume)), volume)
    assert organ.shape == (2, 8, 57)
    assert lesion.shape == (2, 8, 5)


def test_a_cell_alone_is_a_cell_among_others_that_attention_does_not_reach() -> None:
    volume = jax.random.uniform(jax.random.key(0), (1, 8, 16, 16))
    params = _params(volume)
    cells = patchify(volume, TINY.patch).reshape(8, *TINY.patch)
    numbers = jnp.array([6, 1, 3])
    alone = tag_alone(MODEL, params, cells[numbers], numbers)
    among = [logits[0, numbers] for logits in run(MODEL, unflatten(params), volume)]
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(alone, among, strict=True))

    params |= {path: 0 * leaf for path, leaf in params.items() if re.fullmatch(ATTENTION_OUT, path)}
    alone = tag_alone(MODEL, params, cells[numbers], numbers)
    among = [logits[0, numbers] for logits in run(MODEL, unflatten(params), volume)]
    for found, expected in zip(alone, among, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_its_encoder_is_the_models_encoder() -> None:
    """What pretraining leaves must fit into the model, name by name."""

    def init(key: jax.Array) -> dict:
        variables = CellTagger(NANO.encoder, 57, 5).init(key, jnp.zeros((1, *NANO.encoder.image)))
        return flatten(meta.unbox(variables)["params"])

    tagger = {p: x.shape for p, x in jax.eval_shape(init, jax.random.key(0)).items()}
    model = {p: x.shape for p, x in abstract_params(NANO).items()}
    ours = {p: x for p, x in tagger.items() if p.startswith("encoder/")}
    assert ours == {p: x for p, x in model.items() if p.startswith("encoder/")}
    assert set(tagger) - set(ours) == {f"{h}/{p}" for h in ("organ", "lesion") for p in PARTS}
