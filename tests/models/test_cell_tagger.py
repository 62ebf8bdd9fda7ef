import jax
import jax.numpy as jnp
from flax.linen import meta

from tumorchain_jax.models.cell_tagger import CellTagger
from tumorchain_jax.models.tumorchain import NANO, abstract_params
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.path_rules import flatten

PARTS = ("kernel", "bias")
TINY = ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2)


def test_tags_every_cell() -> None:
    model = CellTagger(TINY, labels=57)
    volume = jax.random.uniform(jax.random.key(0), (2, 8, 16, 16))
    params = model.init(jax.random.key(1), volume)
    organ, lesion = model.apply(params, volume)
    assert organ.shape == (2, 8, 57)
    assert lesion.shape == (2, 8)


def test_its_encoder_is_the_models_encoder() -> None:
    """What pretraining leaves must fit into the model, name by name."""

    def init(key: jax.Array) -> dict:
        variables = CellTagger(NANO.encoder, 57).init(key, jnp.zeros((1, *NANO.encoder.image)))
        return flatten(meta.unbox(variables)["params"])

    tagger = {p: x.shape for p, x in jax.eval_shape(init, jax.random.key(0)).items()}
    model = {p: x.shape for p, x in abstract_params(NANO).items()}
    ours = {p: x for p, x in tagger.items() if p.startswith("encoder/")}
    assert ours == {p: x for p, x in model.items() if p.startswith("encoder/")}
    assert set(tagger) - set(ours) == {f"{h}/{p}" for h in ("organ", "lesion") for p in PARTS}
