"""The compiled step of a translation.

Generators and discriminators are updated at once: each generator is judged by the discriminators
that it finds, and these see the pictures that it made. For CycleGAN that is what its own program
does, which makes the pictures before either is updated; CUT's updates the discriminator first.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.translation.model import Discriminator, Generator, Projection
from tumorchain_jax.training.program import (
    Program,
    make_program,
    replicated,
    rows,
    rows_per_device,
)
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.step import MeanLoss
from tumorchain_jax.training.translation.losses import (
    distance,
    from_pool,
    least_squares,
    patch_nce,
    places,
)

FORTH, BACK, JUDGE_A, JUDGE_B, PROJECTION = "a_to_b", "b_to_a", "judge_a", "judge_b", "projection"
PARTS = {"cyclegan": (FORTH, BACK, JUDGE_A, JUDGE_B), "cut": (FORTH, JUDGE_B, PROJECTION)}


def scaled(images: Float[Array, "B S S"]) -> Float[Array, "B S S 1"]:
    """Grey values from 0 to 255 as the networks take them, from -1 to 1."""
    return images[..., None] / 127.5 - 1


def init_params(config: ConfigDict, key: Array) -> Params:
    """New parameters of every part, by path."""
    side, model = config.data.side, config.model
    images = jnp.zeros((1, side, side, model.channels))
    params: Params = {}
    for own, part in zip(jax.random.split(key, 5), PARTS[config.method], strict=False):
        if part in (FORTH, BACK):
            tree = Generator(model).init(own, images)["params"]
        elif part == PROJECTION:
            _, layers = Generator(model).init_with_output(own, images)[0]
            chosen = [jnp.zeros(1, int)] * len(layers)
            tree = Projection().init(own, layers, chosen)["params"]
        else:
            tree = Discriminator(model).init(own, images)["params"]
        params |= {f"{part}/{path}": leaf for path, leaf in flatten(tree).items()}
    return params


def init_pool(config: ConfigDict) -> Params:
    """Empty pools of both looks; CUT has none."""
    if config.method == "cut":
        return {}
    shape = (config.pool, config.data.side, config.data.side, config.model.channels)
    return {
        f"{name}/{field}": value
        for name in ("a", "b")
        for field, value in (("pictures", jnp.zeros(shape)), ("filled", jnp.zeros((), int)))
    }


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes; a batch has `a` and `b`, grey values to 255.

    Raises:
        InputError: the batch cannot be divided among the devices.
    """
    rows_per_device(config, mesh)
    params = jax.eval_shape(partial(init_params, config), jax.random.key(0))
    side = config.data.side
    images = rows(mesh, (config.batch_size, side, side), jnp.float32)
    loss = {"cyclegan": cyclegan_loss, "cut": cut_loss}[config.method]
    return make_program(
        config,
        loss=MeanLoss(partial(loss, config)),
        params=params,
        shardings=replicated(params, mesh),
        trainable=((".*", True),),
        batch={"a": images, "b": images},
        statistics=jax.eval_shape(partial(init_pool, config)),
        steps=config.steps,
        learning_rate_peak=config.learning_rate,
        adversarial=True,
    )


def cyclegan_loss(
    config: ConfigDict, params: Params, pool: Params, batch: dict[str, Array], key: Array
) -> tuple[Metrics, Params]:
    """Least squares of both discriminators, cycle and identity (Zhu et al. 2017)."""
    tree = unflatten(params)
    a, b = scaled(batch["a"]), scaled(batch["b"])
    forth = partial(_generate, config, tree[FORTH])
    back = partial(_generate, config, tree[BACK])
    fake_b, fake_a = forth(a)[0], back(b)[0]
    cycle = distance(back(fake_b)[0], a) + distance(forth(fake_a)[0], b)
    identity = distance(forth(b)[0], b) + distance(back(a)[0], a)
    adversarial = _fooling(config, tree[JUDGE_B], fake_b) + _fooling(config, tree[JUDGE_A], fake_a)
    of_a, of_b = jax.random.split(key)
    seen_a, pool_a = from_pool(of_a, pool, "a", jax.lax.stop_gradient(fake_a))
    seen_b, pool_b = from_pool(of_b, pool, "b", jax.lax.stop_gradient(fake_b))
    judges = _judging(config, tree[JUDGE_A], a, seen_a) + _judging(config, tree[JUDGE_B], b, seen_b)
    generators = adversarial + config.cycle_weight * cycle + config.identity_weight * identity
    metrics = {"loss": generators + judges, "cycle": cycle, "identity": identity}
    return metrics | {"adversarial": adversarial, "judges": judges}, pool_a | pool_b


def cut_loss(
    config: ConfigDict, params: Params, pool: Params, batch: dict[str, Array], key: Array
) -> tuple[Metrics, Params]:
    """Least squares of one discriminator, and contrast of places, also of the identity."""
    tree = unflatten(params)
    a, b = scaled(batch["a"]), scaled(batch["b"])
    forth = partial(_generate, config, tree[FORTH])
    fake, of_a = forth(a)
    same, of_b = forth(b)
    chosen = places(key, [layer.shape for layer in of_a], config.nce_places)

    def project(layers: list[Array]) -> Any:
        return Projection().apply({"params": tree[PROJECTION]}, layers, chosen)

    contrast = patch_nce(project(forth(fake)[1]), project(of_a))
    identity = patch_nce(project(forth(same)[1]), project(of_b))
    adversarial = _fooling(config, tree[JUDGE_B], fake)
    judges = _judging(config, tree[JUDGE_B], b, jax.lax.stop_gradient(fake))
    generators = adversarial + config.nce_weight * (contrast + identity) / 2
    metrics = {"loss": generators + judges, "contrast": contrast, "identity": identity}
    return metrics | {"adversarial": adversarial, "judges": judges}, pool


def _generate(config: ConfigDict, params: Params, images: Array) -> Any:
    return Generator(config.model).apply({"params": params}, images)


def _judge(config: ConfigDict, params: Params, images: Array) -> Any:
    return Discriminator(config.model).apply({"params": params}, images)


def _fooling(config: ConfigDict, judge: Params, fake: Array) -> Array:
    return least_squares(_judge(config, jax.lax.stop_gradient(judge), fake), 1.0)


def _judging(config: ConfigDict, judge: Params, real: Array, fake: Array) -> Array:
    of_real = least_squares(_judge(config, judge, real), 1.0)
    return (of_real + least_squares(_judge(config, judge, fake), 0.0)) / 2
