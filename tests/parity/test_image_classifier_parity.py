"""Image classifiers against timm's, on random weights in float32."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tumorchain_jax.bench.timm_models import make
from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import image_classifier, image_from_dict
from tumorchain_jax.models.image.layers import STATISTICS, StochasticDepth
from tumorchain_jax.models.image.resnet.convert import TABLE
from tumorchain_jax.models.weight_map import sources
from tumorchain_jax.training.optimizer import STATISTICS as STATISTIC_PATHS
from tumorchain_jax.weights.matching import classifier_shapes

pytestmark = pytest.mark.program
SWIN = {"embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4)}
VIT = {"img_size": (64, 96), "embed_dim": 48, "depth": 3, "num_heads": 3}
CASES: dict[str, tuple[str, tuple[int, int], dict[str, Any]]] = {
    "resnet, odd size": ("resnet50", (66, 97), {"layers": (1, 3, 1, 1)}),
    "vit, class token": ("vit_base_patch16_224", (64, 96), VIT),
    "vit, mean": ("vit_base_patch16_224", (64, 96), VIT | {"global_pool": "avg"}),
    "beit": ("beit_base_patch16_224", (64, 96), VIT),
    "beit, one table": (
        "beit_base_patch16_224",
        (64, 96),
        VIT | {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
    ),
    "swin, whole windows": (
        "swin_base_patch4_window7_224", (112, 112), SWIN | {"img_size": (112, 112)}
    ),
    "swin, padded": ("swin_base_patch4_window7_224", (100, 76), SWIN | {"img_size": (100, 76)}),
    "swin, one row of windows": (
        "swin_base_patch4_window7_224", (20, 76), SWIN | {"img_size": (20, 76)}
    ),
}  # fmt: skip
OLD_SWIN = "swin, one row of windows"


def write_folder(folder: Path, architecture: str, model: torch.nn.Module, args: dict) -> None:
    """A folder as timm writes it."""
    folder.mkdir()
    tensors = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    fields = {
        "architecture": architecture,
        "num_classes": 5,
        "global_pool": args.get("global_pool", "token" if "vit" in architecture else "avg"),
        "model_args": args,
        "pretrained_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    }
    (folder / "config.json").write_text(json.dumps(fields))


def imported(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The module of an imported folder and its variables."""
    found = Imported(folder)
    config = image_from_dict(found.config["classifier"])
    flat = flatten(found.restore()["classifier"])
    running = {path: leaf for path, leaf in flat.items() if STATISTIC_PATHS.fullmatch(path)}
    params = {path: leaf for path, leaf in flat.items() if path not in running}
    variables = {"params": unflatten(params), STATISTICS: unflatten(running)}
    return image_classifier(config).build(config), variables


def pictures(size: tuple[int, int], rows: int = 2) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, *size, 3)).astype(np.float32)


def torch_input(images: np.ndarray) -> torch.Tensor:
    return torch.tensor(images.transpose(0, 3, 1, 2))


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, torch.nn.Module, tuple[int, int]]:
    """A folder of timm's and what is imported from it, beside it as `ours`."""
    architecture, size, args = CASES[request.param]
    model = make(architecture, num_classes=5, **args)
    folder = tmp_path_factory.mktemp("timm")
    write_folder(folder / "theirs", architecture, model, args)
    convert("import", folder / "theirs", folder / "ours")
    return folder, model, size


def test_logits_features_and_gradients_are_timms(
    case: tuple[Path, torch.nn.Module, tuple[int, int]],
) -> None:
    """Gradients of the pixels, in evaluation mode; in training mode: below."""
    folder, model, size = case
    module, variables = imported(folder / "ours")
    images, labels = pictures(size), np.array([0, 3])

    def loss(image: jax.Array, variables: dict) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        logits, features = module.apply(variables, image)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return each.mean(), (logits, features)

    gradient, (logits, features) = jax.jit(jax.grad(loss, has_aux=True))(images, variables)
    x = torch_input(images).requires_grad_()
    hidden = model.forward_features(x)
    expected = model.forward_head(hidden)
    torch.nn.functional.cross_entropy(expected, torch.tensor(labels)).backward()
    for ours, theirs, tolerance in (
        (logits, expected, 1e-5),
        (features, model.forward_head(hidden, pre_logits=True), 1e-5),
        (gradient.transpose(0, 3, 1, 2), x.grad, 1e-4),
    ):
        theirs = theirs.detach().numpy()
        assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


def test_tensors_come_back_byte_by_byte(
    case: tuple[Path, torch.nn.Module, tuple[int, int]], tmp_path: Path
) -> None:
    folder, _, _ = case
    convert("export", folder / "ours", tmp_path / "back")
    theirs, back = (
        load_file(each / "model.safetensors") for each in (folder / "theirs", tmp_path / "back")
    )
    assert theirs.keys() == back.keys()
    assert all(theirs[key].tobytes() == back[key].tobytes() for key in theirs)
    assert all(theirs[key].dtype == back[key].dtype for key in theirs)
    facts = convert("verify", folder / "theirs", folder / "ours")
    assert facts["same"]


def old_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same in the names before timm 0.9, with buffers."""
    renamed = {}
    for key, tensor in tensors.items():
        parts = key.replace("head.fc.", "head.").split(".")
        if "downsample" in parts:
            parts[1] = str(int(parts[1]) - 1)
        renamed[".".join(parts)] = tensor
    index = np.arange(49 * 49).reshape(49, 49)
    return renamed | {"layers.0.blocks.0.attn.relative_position_index": index}


@pytest.mark.usefixtures("pickles_opened_here")
def test_older_names_of_swin_give_the_same_model(tmp_path: Path) -> None:
    architecture, _, args = CASES[OLD_SWIN]
    model = make(architecture, num_classes=5, **args)
    write_folder(tmp_path / "new", architecture, model, args)
    tensors = load_file(tmp_path / "new" / "model.safetensors")
    (tmp_path / "old").mkdir()
    renamed = {key: torch.tensor(value) for key, value in old_names(tensors).items()}
    torch.save({"model": renamed}, tmp_path / "old" / "pytorch_model.bin")
    (tmp_path / "old" / "config.json").write_bytes((tmp_path / "new" / "config.json").read_bytes())
    models = []
    for name in ("new", "old"):
        convert("import", tmp_path / name, tmp_path / f"{name}_ours")
        module, variables = imported(tmp_path / f"{name}_ours")
        models.append((module, {path: leaf.tobytes() for path, leaf in flatten(variables).items()}))
    assert models[0] == models[1]
    convert("export", tmp_path / "old_ours", tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert {key: value.tobytes() for key, value in back.items()} == {
        key: value.numpy().tobytes() for key, value in renamed.items()
    }


@pytest.mark.usefixtures("pickles_opened_here")
def test_usfm_pickle_without_configuration_is_a_beit(tmp_path: Path) -> None:
    """Its three peculiarities: one table for all blocks, buffers of indices, no head."""
    architecture, _, args = CASES["beit, one table"]
    args = args | {"img_size": 64, "num_heads": 3}
    model = make(architecture, num_classes=0, **args)
    tensors = dict(model.state_dict()) | {
        "rel_pos_bias.relative_position_index": torch.zeros(2, 2).long()
    }
    (tmp_path / "usfm").mkdir()
    torch.save(tensors, tmp_path / "usfm" / "USFM_latest.pth")
    convert("import", tmp_path / "usfm", tmp_path / "ours")
    module, variables = imported(tmp_path / "ours")
    images = pictures((64, 64))
    _, features = jax.jit(module.apply)(variables, images)
    with torch.no_grad():
        theirs = model(torch_input(images)).numpy()
    assert np.abs(features - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_head_is_dropped_on_request_alone_and_comes_back(tmp_path: Path) -> None:
    architecture, size, args = CASES["vit, class token"]
    model = make(architecture, num_classes=5, **args)
    write_folder(tmp_path / "theirs", architecture, model, args)
    convert("import", tmp_path / "theirs", tmp_path / "ours", drop_head=True)
    module, variables = imported(tmp_path / "ours")
    assert "head" not in variables["params"]
    logits, features = jax.jit(module.apply)(variables, pictures(size))
    assert logits.shape == (2, 48)
    np.testing.assert_array_equal(logits, features)
    convert("export", tmp_path / "ours", tmp_path / "back")
    theirs, back = (load_file(tmp_path / each / "model.safetensors") for each in ("theirs", "back"))
    assert {key: value.tobytes() for key, value in theirs.items()} == {
        key: value.tobytes() for key, value in back.items()
    }


def loss_of(
    module: nn.Module, images: np.ndarray, labels: np.ndarray, params: dict, statistics: dict
) -> tuple[jax.Array, dict]:
    """Loss in training mode, and the new statistics."""
    tree = {"params": unflatten(params), STATISTICS: unflatten(statistics)}
    (logits, _), new = module.apply(tree, jnp.asarray(images), train=True, mutable=[STATISTICS])
    each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return each.mean(), flatten(new[STATISTICS])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, nn.Module, Any]:
    """A ResNet of timm's in training mode, ours, and its variables."""
    architecture, _, args = CASES["resnet, odd size"]
    model = make(architecture, num_classes=5, **args).train()
    folder = tmp_path_factory.mktemp("trained")
    write_folder(folder / "theirs", architecture, model, args)
    convert("import", folder / "theirs", folder / "ours")
    return model, *imported(folder / "ours")


LABELS = np.array([0, 3, 1, 4])


@pytest.mark.system(haste=True)
def test_resnet_gradients_in_training_are_timms(
    trained: tuple[torch.nn.Module, nn.Module, Any],
) -> None:
    """In double precision: in single, some of 10^5 ReLUs are on the other side of zero."""
    model, module, variables = deepcopy(trained)
    model.double()
    images = np.random.default_rng(0).normal(size=(4, 66, 97, 3))
    out = model(torch_input(images))
    torch.nn.functional.cross_entropy(out, torch.tensor(LABELS)).backward()
    named = dict(model.named_parameters())
    flat = {name: flatten(variables[name]) for name in ("params", STATISTICS)}
    table = image_classifier_keys(flat["params"] | flat[STATISTICS])
    with jax.enable_x64():
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), flat)
        double = module.clone(dtype=jnp.float64)
        loss = partial(loss_of, double, images, LABELS)
        gradient, _ = jax.jit(jax.grad(loss, has_aux=True))(wide["params"], wide[STATISTICS])
        for key, ours in table(gradient):
            theirs = named[key].grad.numpy()
            assert np.abs(ours - theirs).max() <= 1e-10 * np.abs(theirs).max(), key


@pytest.mark.system(haste=True)
def test_resnet_losses_and_statistics_in_training_are_timms(
    trained: tuple[torch.nn.Module, nn.Module, Any],
) -> None:
    """Running statistics after a step, and losses of five AdamW steps."""
    model, module, variables = deepcopy(trained)
    params, statistics = flatten(variables["params"]), flatten(variables[STATISTICS])
    images = pictures((66, 97), 4)

    @jax.jit
    def step(params: dict, statistics: dict, moments: Any) -> tuple:
        loss = partial(loss_of, module, images, LABELS)
        (value, new), gradient = jax.value_and_grad(loss, has_aux=True)(params, statistics)
        updates, moments = optimizer.update(gradient, moments, params)
        return value, optax.apply_updates(params, updates), new, moments

    optimizer = optax.adamw(5e-5, weight_decay=0.1)
    theirs = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.1)
    table = image_classifier_keys(params | statistics)
    moments, losses, expected = optimizer.init(params), [], []
    for number in range(5):
        value, params, statistics, moments = step(params, statistics, moments)
        losses.append(float(value))
        theirs.zero_grad()
        out = torch.nn.functional.cross_entropy(model(torch_input(images)), torch.tensor(LABELS))
        out.backward()
        expected.append(float(out.detach()))
        if number == 0:
            buffers = dict(model.named_buffers())
            for path, ours in table(statistics):
                np.testing.assert_allclose(ours, buffers[path].numpy(), rtol=1e-6, atol=1e-6)
        theirs.step()
    assert abs(losses[0] - expected[0]) <= 1e-5 * expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def image_classifier_keys(flat: dict[str, Any]) -> Any:
    """A function: our arrays by path -> (timm's key, array in timm's layout)."""
    made_of = sources(TABLE, flat)

    def named(arrays: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
        for path, value in arrays.items():
            source = made_of[path]
            layers = np.asarray(value) if source.stacked else [np.asarray(value)]
            for key, layer in zip(source.keys, layers, strict=True):
                yield key, source.transform.from_ours(layer)

    return named


@pytest.mark.parametrize(
    ("architecture", "classes", "count"),
    [
        ("resnet50", 1000, 25_557_032),
        ("resnet50", 2, 23_512_130),
        ("resnet101", 1000, 44_549_160),
        ("resnet152", 1000, 60_192_808),
        ("resnet152", 2, 58_147_906),
        ("swin_base", 1000, 87_768_224),
        ("swin_large", 2, 194_998_550),
        ("vit_base", 1000, 86_567_656),
        ("vit_large", 2, 303_303_682),
    ],
)
def test_parameters_at_full_size(architecture: str, classes: int, count: int) -> None:
    large = architecture.endswith("large")
    values: dict[str, Any] = {"classes": classes}
    if architecture.startswith("resnet"):
        blocks = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
        values |= {"family": "resnet", "blocks": blocks[architecture[6:]]}
    elif architecture.startswith("swin"):
        heads = (6, 12, 24, 48) if large else (4, 8, 16, 32)
        values |= {"family": "swin", "hidden_size": 192 if large else 128, "num_heads": heads}
    else:
        sizes = (1024, 4096, 24, 16) if large else (768, 3072, 12, 12)
        names = ("hidden_size", "mlp_size", "num_layers", "num_heads")
        values |= {"family": "vit", **dict(zip(names, sizes, strict=True))}
    shapes = classifier_shapes(image_from_dict(values))
    trained = [shape for path, shape in shapes.items() if not STATISTIC_PATHS.fullmatch(path)]
    assert sum(int(np.prod(shape)) for shape in trained) == count


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "swinv2_base_window8_256"}, "architecture"),
        ({"model_args": {"qk_norm": True}}, "model_args"),
        ({"model_args": {**VIT, "num_heads": 5}}, "num_heads"),
        ({"model_args": {**VIT, "global_pool": "map"}}, "global_pool"),
    ],
)
def test_variants_that_ours_are_not_are_refused(tmp_path: Path, change: dict, said: str) -> None:
    architecture, _, args = CASES["vit, class token"]
    write_folder(tmp_path / "theirs", architecture, make(architecture, num_classes=5, **args), args)
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=said):
        convert("import", tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_drop_head_is_refused_for_other_weights(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    save_file({"weight": np.zeros(2, np.float32)}, tmp_path / "theirs" / "model.safetensors")
    with pytest.raises(InputError, match="--drop-head"):
        convert("import", tmp_path / "theirs", tmp_path / "ours", drop_head=True)


def test_stochastic_depth_drops_whole_branches_of_some_images() -> None:
    x = jnp.ones((1000, 3))
    rngs = {"drop_path": jax.random.key(0)}
    y = StochasticDepth().apply({}, x, 0.25, True, rngs=rngs)
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert (np.ptp(y, axis=1) == 0).all()
    assert abs((np.asarray(y)[:, 0] == 0).mean() - 0.25) < 0.05
    np.testing.assert_array_equal(StochasticDepth().apply({}, x, 0.25, False), x)
