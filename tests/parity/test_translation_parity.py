"""CycleGAN's and CUT's networks and losses against PyTorch, on random weights in float32."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from translation_twins import (
    TwinDiscriminator,
    TwinGenerator,
    twin_nce,
    twin_project,
)

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.translation.convert import discriminator_table, generator_table
from tumorchain_jax.models.translation.model import (
    Discriminator,
    Generator,
    Projection,
    TranslationConfig,
)
from tumorchain_jax.models.weight_map import Table, from_ours, sources
from tumorchain_jax.training.translation.config import base_config
from tumorchain_jax.training.translation.losses import from_pool, patch_nce, places
from tumorchain_jax.training.translation.program import cut_loss, cyclegan_loss, init_pool
from tumorchain_jax.weights.translation_folder import read_cyclegan

pytestmark = pytest.mark.program
BLOCKS = 2
CONFIG = TranslationConfig(width=4, blocks=BLOCKS, discriminator_width=4, channels=1)
SIDE, ROWS = 32, 2


def twins(seed: int = 0) -> dict[str, torch.nn.Module]:
    torch.manual_seed(seed)
    made: dict[str, torch.nn.Module] = {
        "a_to_b": TwinGenerator(1, 4, BLOCKS),
        "b_to_a": TwinGenerator(1, 4, BLOCKS),
        "judge_a": TwinDiscriminator(1, 4),
        "judge_b": TwinDiscriminator(1, 4),
    }
    return made


def ours(twin: torch.nn.Module, module: Any, table: Table) -> dict[str, np.ndarray]:
    """The weights of a twin by our paths."""
    images = jnp.zeros((1, SIDE, SIDE, 1))
    tree = jax.eval_shape(partial(module.init, jax.random.key(0)), images)["params"]
    state = {key: value.detach().numpy() for key, value in twin.state_dict().items()}
    named = sources(table, flatten(tree))
    assert {key for source in named.values() for key in source.keys} == set(state)
    return {
        path: np.array(source.transform.to_ours(state[source.keys[0]]))
        for path, source in named.items()
    }


@pytest.fixture(scope="module")
def parts() -> tuple[dict[str, torch.nn.Module], dict[str, np.ndarray]]:
    made, params = twins(), {}
    for name, twin in made.items():
        is_way = name in ("a_to_b", "b_to_a")
        module = Generator(CONFIG) if is_way else Discriminator(CONFIG)
        table = generator_table(BLOCKS) if is_way else discriminator_table()
        params |= {f"{name}/{path}": leaf for path, leaf in ours(twin, module, table).items()}
    return made, params


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.integers(0, 256, (ROWS, SIDE, SIDE)).astype(np.float32) for _ in "ab")


def as_torch(images: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(images).to(dtype)[:, None] / 127.5 - 1


@pytest.fixture
def exact(parts: Any) -> Iterator[dict[str, torch.nn.Module]]:
    """The twins in float64: in float32 PyTorch's own gradients of the first layer are 2e-2 off."""
    for twin in parts[0].values():
        twin.double().zero_grad()
    yield parts[0]
    for twin in parts[0].values():
        twin.float()


def close(found: Any, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    value = expected.detach().numpy()
    if value.ndim == 4:
        value = value.transpose(0, 2, 3, 1)
    scale = np.abs(value).max()
    np.testing.assert_allclose(np.asarray(found) / scale, value / scale, rtol=0, atol=tolerance)


def gradients_close(found: dict[str, Any], made: dict[str, torch.nn.Module]) -> None:
    for name, twin in made.items():
        is_way = name in ("a_to_b", "b_to_a")
        own = unflatten(found).get(name)
        if own is None:
            continue
        theirs = from_ours(generator_table(BLOCKS) if is_way else discriminator_table(), own)
        largest = max(float(p.grad.abs().max()) for p in twin.parameters())
        for key, parameter in twin.named_parameters():
            np.testing.assert_allclose(
                theirs[key] / largest, parameter.grad.numpy() / largest, rtol=0, atol=1e-4,
                err_msg=f"{name} {key}",
            )  # fmt: skip


def test_networks_equal_pytorch(parts: Any, images: Any) -> None:
    made, params = parts
    tree, x = unflatten(params), images[0]
    scaled = jnp.asarray(x)[..., None] / 127.5 - 1
    out, layers = jax.jit(lambda p, x: Generator(CONFIG).apply({"params": p}, x))(
        tree["a_to_b"], scaled
    )
    expected, compared = made["a_to_b"](as_torch(x))
    close(out, expected)
    for own, their in zip(layers, compared, strict=True):
        close(own, their)
    score = jax.jit(lambda p, x: Discriminator(CONFIG).apply({"params": p}, x))(
        tree["judge_b"], scaled
    )
    close(score, made["judge_b"](as_torch(x)))


def settings(method: str) -> Any:
    config = base_config(method, CONFIG)
    config.data.side, config.pool, config.nce_places = SIDE, 4, 20
    return config


@pytest.mark.system(haste=True)
def test_cyclegan_loss_and_gradients_equal_pytorch(parts: Any, exact: Any, images: Any) -> None:
    """With an empty pool, so that the discriminators see the pictures at hand."""
    made, params = exact, parts[1]
    batch = {"a": jnp.asarray(images[0]), "b": jnp.asarray(images[1])}
    config = settings("cyclegan")

    def value(params: Any) -> Any:
        metrics, pool = cyclegan_loss(config, params, init_pool(config), batch, jax.random.key(0))
        return metrics["loss"], (metrics, pool)

    (_, (metrics, pool)), found = jax.jit(jax.value_and_grad(value, has_aux=True))(params)
    a, b = (as_torch(each, torch.float64) for each in images)
    forth, back = made["a_to_b"], made["b_to_a"]
    fake_b, fake_a = forth(a)[0], back(b)[0]
    mse, l1 = torch.nn.functional.mse_loss, torch.nn.functional.l1_loss
    cycle = l1(back(fake_b)[0], a) + l1(forth(fake_a)[0], b)
    identity = l1(forth(b)[0], b) + l1(back(a)[0], a)
    adversarial = 0.0
    for judge, fake in (("judge_b", fake_b), ("judge_a", fake_a)):
        made[judge].requires_grad_(False)
        score = made[judge](fake)
        adversarial = adversarial + mse(score, torch.ones_like(score))
        made[judge].requires_grad_(True)
    (adversarial + 10 * cycle + 5 * identity).backward()
    judges = 0.0
    for judge, real, fake in (("judge_b", b, fake_b), ("judge_a", a, fake_a)):
        of_real, of_fake = made[judge](real), made[judge](fake.detach())
        judges = judges + 0.5 * (
            mse(of_real, torch.ones_like(of_real)) + mse(of_fake, torch.zeros_like(of_fake))
        )
    judges.backward()
    for name, theirs in (
        ("cycle", cycle), ("identity", identity), ("adversarial", adversarial), ("judges", judges)
    ):  # fmt: skip
        np.testing.assert_allclose(float(metrics[name]), float(theirs.detach()), rtol=1e-5)
    gradients_close(found, made)
    close(pool["b/pictures"][:ROWS], fake_b)
    assert int(pool["a/filled"]) == ROWS


@pytest.mark.system(haste=True)
def test_contrast_of_places_and_its_gradients_equal_pytorch(
    parts: Any, exact: Any, images: Any
) -> None:
    made, params = exact, parts[1]
    config, key = settings("cut"), jax.random.key(3)
    batch = {"a": jnp.asarray(images[0]), "b": jnp.asarray(images[1])}
    (_, layers), _ = jax.eval_shape(
        Generator(CONFIG).init_with_output, key, jnp.zeros((ROWS, SIDE, SIDE, 1))
    )
    shapes = [layer.shape for layer in layers]
    first = [np.zeros(1, int)] * len(layers)
    blank = [np.zeros(shape, np.float32) for shape in shapes]
    projection = jax.jit(Projection().init)(key, blank, first)["params"]
    own = {path: leaf for path, leaf in params.items() if path.startswith(("a_to_b", "judge_b"))}
    own |= {f"projection/{path}": leaf for path, leaf in flatten(projection).items()}

    def value(params: Any) -> Any:
        metrics, _ = cut_loss(config, params, {}, batch, key)
        return metrics["loss"], metrics

    (_, metrics), found = jax.jit(jax.value_and_grad(value, has_aux=True))(own)
    drawn = jax.jit(lambda key: places(key, shapes, config.nce_places))(key)
    chosen = [np.array(each) for each in drawn]
    assert all(len(set(each.tolist())) == len(each) for each in chosen)
    tensors = jax.tree.map(
        lambda x: torch.tensor(np.asarray(x, float), requires_grad=True), projection
    )
    a, b = (as_torch(each, torch.float64) for each in images)
    forth, judge = made["a_to_b"], made["judge_b"]
    (fake, of_a), (same, of_b) = forth(a), forth(b)
    losses = {}
    for name, query, key_layers in (
        ("contrast", forth(fake)[1], of_a),
        ("identity", forth(same)[1], of_b),
    ):
        queries, keys = (twin_project(tensors, each, chosen) for each in (query, key_layers))
        each = [twin_nce(q, k, ROWS) for q, k in zip(queries, keys, strict=True)]
        losses[name] = torch.stack(each).mean()
    mse = torch.nn.functional.mse_loss
    judge.requires_grad_(False)
    score = judge(fake)
    losses["adversarial"] = mse(score, torch.ones_like(score))
    judge.requires_grad_(True)
    (losses["adversarial"] + (losses["contrast"] + losses["identity"]) / 2).backward()
    of_real, of_fake = judge(b), judge(fake.detach())
    losses["judges"] = 0.5 * (
        mse(of_real, torch.ones_like(of_real)) + mse(of_fake, torch.zeros_like(of_fake))
    )
    losses["judges"].backward()
    for name, theirs in losses.items():
        np.testing.assert_allclose(float(metrics[name]), float(theirs.detach()), rtol=1e-5)
    gradients_close(found, {"a_to_b": forth, "judge_b": judge})
    largest = max(float(leaf.grad.abs().max()) for leaf in jax.tree.leaves(tensors))
    for path, leaf in flatten(tensors).items():
        np.testing.assert_allclose(
            np.asarray(found[f"projection/{path}"]) / largest, leaf.grad.numpy() / largest,
            rtol=0, atol=1e-4,
        )  # fmt: skip


def test_contrast_is_low_where_places_match() -> None:
    vectors = np.eye(8, dtype=np.float32)[None]
    contrast = jax.jit(lambda one, other: patch_nce([one], [other]))
    same, other = (float(contrast(vectors, np.roll(vectors, by, 1))) for by in (0, 1))
    assert same < 1e-4 < 5 < other


def test_pool_gives_earlier_pictures_half_the_time() -> None:
    pool = {"a/pictures": jnp.zeros((4, 2, 2, 1)), "a/filled": jnp.zeros((), int)}
    step = jax.jit(lambda key, pool, images: from_pool(key, pool, "a", images))
    earlier = 0
    for number in range(104):
        images = jnp.full((1, 2, 2, 1), float(number + 1))
        given, pool = step(jax.random.key(number), pool, images)
        assert given[0].min() == given[0].max() > 0
        is_earlier = float(given[0, 0, 0, 0]) != number + 1
        earlier += is_earlier
        kept = set(np.asarray(pool["a/pictures"])[:, 0, 0, 0].tolist())
        assert (number + 1 in kept) == (number < 4 or is_earlier)
        if number < 4:
            assert not is_earlier
    assert 30 < earlier < 70


@pytest.mark.parametrize("dropout", [False, True])
def test_published_generators_are_read_and_others_refused(
    dropout: bool, images: Any, tmp_path: Path, pickles_opened_here: None
) -> None:
    torch.manual_seed(1)
    twin = TwinGenerator(1, 4, 9, dropout).eval()
    path = tmp_path / "latest_net_G_A.pth"
    torch.save(twin.state_dict(), path)
    model, params = read_cyclegan(path)
    assert (model.width, model.blocks, model.channels) == (4, 9, 1)
    if dropout:
        out, _ = jax.jit(lambda p, x: Generator(model).apply({"params": p}, x))(
            unflatten(params), jnp.asarray(images[0])[..., None] / 127.5 - 1
        )
        close(out, twin(as_torch(images[0]))[0])
        return
    back = from_ours(generator_table(9), unflatten(params))
    for key, value in twin.state_dict().items():
        np.testing.assert_array_equal(back[key], value.numpy())
    tracked = twin.state_dict() | {"model.2.running_mean": torch.zeros(4)}
    torch.save(tracked, path)
    with pytest.raises(InputError, match="running_mean"):
        read_cyclegan(path)
    torch.save(TwinDiscriminator(1, 4).state_dict(), path)
    with pytest.raises(InputError, match="generator"):
        read_cyclegan(path)
