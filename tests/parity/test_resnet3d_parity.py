"""The 3D ResNet against a PyTorch twin of Merlin's I3ResNet, weights and statistics random."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.families import encoder_from_dict
from tumorchain_jax.models.vision.resnet3d.convert import CARRIED, TABLE, kernel_flops
from tumorchain_jax.models.vision.resnet3d.model import ResNet3D, ResNet3DConfig
from tumorchain_jax.models.weight_map import from_ours

torch = pytest.importorskip("torch")
FlopCounterMode = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode

# Largest difference of the features over their largest value, in float32.
TOLERANCE = 1e-5
# Sides that all differ, even numbers of cells and odd ones, a stage of one block and of three.
SMALL = ResNet3DConfig((32, 64, 96), (1, 2, 3, 1), 4)
LAYOUTS = (
    pytest.param("whole", marks=pytest.mark.system(haste=True)),
    pytest.param("five-year", marks=pytest.mark.system),
    pytest.param("report", marks=pytest.mark.system),
)


class Bottleneck(torch.nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, downsample: bool):
        super().__init__()
        conv, norm = partial(torch.nn.Conv3d, bias=False), torch.nn.BatchNorm3d
        self.conv1, self.bn1 = conv(inputs, width, 1), norm(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride, 1), norm(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), norm(4 * width)
        self.downsample = None
        if downsample:
            shortcut = conv(inputs, 4 * width, 1, stride)
            self.downsample = torch.nn.Sequential(shortcut, norm(4 * width))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(y)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class I3ResNet(torch.nn.Module):
    """What merlin/models/i3res.py makes of torchvision's ResNet, up to the fourth stage."""

    def __init__(self, config: ResNet3DConfig):
        super().__init__()
        width = config.width
        self.conv1 = torch.nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
        self.bn1 = torch.nn.BatchNorm3d(width)
        self.maxpool = torch.nn.MaxPool3d(3, 2, 1)
        inputs = width
        for number, blocks in enumerate(config.blocks):
            inside = width * 2**number
            stage = []
            for block in range(blocks):
                stride = 2 if number and not block else 1
                stage.append(Bottleneck(inputs, inside, stride, not block))
                inputs = 4 * inside
            setattr(self, f"layer{number + 1}", torch.nn.Sequential(*stage))
        self.classifier = torch.nn.Conv3d(inputs, 5, 1)  # not ours
        self.contrastive_head = torch.nn.Conv3d(inputs, 3, 1)

    def forward(self, x: Any) -> Any:
        """A scan `[B, 1, X, Y, Z]` (right, anterior, superior) -> `[B, X', Y', Z', C]`."""
        x = x.permute(0, 1, 4, 2, 3)
        x = torch.cat((x, x, x), dim=1)
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.permute(0, 3, 4, 2, 1)


@pytest.fixture(scope="module")
def model() -> Any:
    """Nothing constant: a constant weight or statistic would hide a mix-up."""
    torch.manual_seed(0)
    model = I3ResNet(SMALL)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm3d):
            torch.nn.init.normal_(module.weight, 1, 0.2)
            torch.nn.init.normal_(module.bias, 0, 0.2)
            torch.nn.init.normal_(module.running_mean, 0, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
            module.num_batches_tracked.fill_(7)
    return model.eval()


def shapes(config: ResNet3DConfig) -> dict:
    volume = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
    return nn.unbox(jax.eval_shape(ResNet3D(config).init, jax.random.key(0), volume))["params"]


def expected_features(model: Any, volume: np.ndarray) -> np.ndarray:
    """Merlin's features of a volume of ours (superior, posterior, left), in our order of cells."""
    x = torch.from_numpy(volume[:, :, ::-1, ::-1].transpose(0, 3, 2, 1).copy())[:, None]
    with torch.no_grad():
        features = model(x).numpy()  # right, anterior, superior
    cells = features[:, ::-1, ::-1].transpose(0, 3, 2, 1, 4)
    return cells.reshape(len(cells), -1, cells.shape[-1])


def assert_close(got: Any, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE * np.abs(expected).max()


def random_volume() -> np.ndarray:
    return np.random.default_rng(1).random((2, *SMALL.image), np.float32)


def test_resnet3d_features_equal_the_twin_s_and_weights_come_back(
    model: Any, load_weights: Callable[..., dict]
) -> None:
    theirs = {key: value.numpy() for key, value in model.state_dict().items()}
    params = load_weights(TABLE, theirs, shapes(SMALL), CARRIED)
    volume = random_volume()
    got = jax.jit(ResNet3D(SMALL).apply)({"params": params}, volume)
    assert_close(got, expected_features(model, volume))
    back = from_ours(TABLE, params)
    heads = ("classifier", "contrastive_head")
    assert theirs.keys() - back.keys() == {
        key for key in theirs if key.startswith(heads) or key.endswith("num_batches_tracked")
    }
    for key, value in back.items():
        np.testing.assert_array_equal(value, theirs[key])


def named(layout: str, model: Any) -> dict[str, Any]:
    """The state dict of one of Merlin's three checkpoints."""
    bare = model.state_dict()
    if layout == "five-year":
        return bare
    other = {"encode_text.linear_layer.weight": torch.arange(6.0).reshape(2, 3)}
    if layout == "whole":
        whole = {f"encode_image.i3_resnet.{key}": value for key, value in bare.items()}
        return whole | other | {"logit_scale": torch.tensor(1.5)}
    places = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6, "layer4": 7}
    report = {"adapter.linear2.weight": torch.arange(6.0).reshape(3, 2)}
    for key, value in bare.items():
        part, _, rest = key.partition(".")
        if part in places:
            report[f"encode_image.vision_model.features.{places[part]}.{rest}"] = value
    return report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resnet3d_checkpoints_are_read_and_written_back(
    layout: str, model: Any, tmp_path: Path
) -> None:
    theirs = named(layout, model)
    (tmp_path / "theirs").mkdir()
    torch.save(theirs, tmp_path / "theirs" / "merlin.pt")

    def convert(what: str, source: str, output: str) -> None:
        options = ("-i", str(tmp_path / source), "-o", str(tmp_path / output))
        assert main(["convert", what, *options]) == 0

    convert("import", "theirs", "ours")
    convert("verify", "theirs", "ours")
    convert("export", "ours", "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == theirs.keys()
    for key, value in back.items():
        assert value.dtype == theirs[key].dtype
        assert torch.equal(value, theirs[key]), key

    imported = Imported(tmp_path / "ours")
    config = encoder_from_dict(imported.config["encoder"])
    assert config == ResNet3DConfig(blocks=SMALL.blocks, width=SMALL.width)
    volume = random_volume()
    got = jax.jit(ResNet3D(SMALL).apply)({"params": imported.restore()["encoder"]}, volume)
    assert_close(got, expected_features(model, volume))


@pytest.mark.system(haste=True)
def test_resnet3d_gradients_equal_the_twin_s(model: Any, load_weights: Callable[..., dict]) -> None:
    """With frozen statistics in PyTorch too; of the stem's kernel, of a norm, of a later stage."""
    theirs = {key: value.numpy() for key, value in model.state_dict().items()}
    params, volume = load_weights(TABLE, theirs, shapes(SMALL), CARRIED), random_volume()[:1]

    def loss(params: Any) -> Any:
        features = ResNet3D(SMALL, remat="full").apply({"params": params}, jnp.asarray(volume))
        return (features**2).mean()

    got = from_ours(TABLE, jax.jit(jax.grad(loss))(params))
    model.zero_grad()
    x = torch.from_numpy(volume[:, :, ::-1, ::-1].transpose(0, 3, 2, 1).copy())[:, None]
    (model(x) ** 2).mean().backward()
    for key, parameter in model.named_parameters():
        if key in got:
            expected = parameter.grad.numpy()
            difference = np.abs(got[key] - expected).max()
            assert difference <= 1e-4 * np.abs(expected).max(), key
    statistics = [value for key, value in got.items() if ".running_" in key]
    assert statistics
    assert not any(value.any() for value in statistics)


def test_resnet3d_152_has_merlin_s_shapes() -> None:
    """160 x 224 x 224 -> 10 x 7 x 7 cells of 2048; the keys of an inflated ResNet-152."""
    config = ResNet3DConfig()
    assert (config.cells, config.features) == ((10, 7, 7), 2048)
    params = shapes(config)
    volume = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
    features = jax.eval_shape(ResNet3D(config).apply, {"params": params}, volume)
    assert features.shape == (1, 490, 2048)
    like = jax.tree.map(lambda x: np.broadcast_to(np.float32(0), x.shape), params)
    with torch.device("meta"):
        twin = I3ResNet(config).state_dict()
    theirs = {key: tuple(value.shape) for key, value in twin.items()}
    ours = {key: value.shape for key, value in from_ours(TABLE, like).items()}
    assert ours.items() <= theirs.items()
    assert len(ours) == 155 * 5  # convolutions: weight; norm: two weights, two statistics


def test_resnet3d_flops_are_what_pytorch_counts() -> None:
    """But for the stem, which here takes one channel where PyTorch takes three copies of it."""
    config = ResNet3DConfig()
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        I3ResNet(config).eval()(torch.empty(1, 1, 224, 224, 160))
    stem = 2 * 3 * 7 * 7 * 3 * 64 * 160 * 112 * 112
    like = {path: leaf.shape for path, leaf in flatten(shapes(config)).items()}
    ours = sum(
        kernel_flops(config, path, shape)
        for path, shape in like.items()
        if path.endswith("/kernel")
    )
    assert ours == counter.get_total_flops() - stem * 2 // 3
