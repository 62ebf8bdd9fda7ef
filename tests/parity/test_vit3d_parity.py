"""The 3D encoder against the same network put together from MONAI's blocks, as M3D does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.models.tumorchain.projector import Projector as OurProjector
from tumorchain_jax.models.tumorchain.projector import ProjectorConfig
from tumorchain_jax.models.vision.vit3d.convert import CLIP_FIELDS, TABLE
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig
from tumorchain_jax.models.weight_map import from_ours

torch = pytest.importorskip("torch")

# Largest difference of the features over their largest value, in float32.
TOLERANCE = 1e-5

SMALL = ViT3DConfig((8, 32, 48), (4, 16, 16), 24, 40, 2, 4)
TRUE_WIDTH = ViT3DConfig((8, 64, 96), (4, 16, 16), 768, 3072, 2, 12)
RandomM3D = Callable[[ViT3DConfig], Any]
CONFIGS = pytest.mark.parametrize("config", [SMALL, TRUE_WIDTH], ids=["small", "true-width"])


@pytest.fixture(scope="session")
def random_m3d(m3d_vit: Callable[[ViT3DConfig], Any]) -> Callable[[ViT3DConfig], Any]:
    """Every parameter random, biases and norms too: a constant one would hide a mix-up."""

    def build(config: ViT3DConfig) -> Any:
        torch.manual_seed(0)
        model = m3d_vit(config)
        for name, parameter in model.named_parameters():
            is_scale = ".norm" in f".{name}" and name.endswith("weight")
            torch.nn.init.normal_(parameter, float(is_scale), 2 * config.hidden_size**-0.5)
        return model

    return build


def load(model: Any, config: ViT3DConfig, folder: Path) -> dict[str, Any]:
    """The encoder's parameters, imported from a saved model."""
    (folder / "theirs").mkdir()
    save_file(model.state_dict(), folder / "theirs" / "model.safetensors")
    fields = {theirs: getattr(config, ours) for theirs, ours in CLIP_FIELDS.items()}
    (folder / "theirs" / "config.json").write_text(json.dumps(fields))
    import_folder(folder / "theirs", folder / "ours")
    return Imported(folder / "ours").restore()["encoder"]


def shapes(config: ViT3DConfig) -> dict:
    volume = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
    return nn.unbox(jax.eval_shape(ViT3D(config).init, jax.random.key(0), volume))["params"]


@CONFIGS
def test_features_equal_monai(config: ViT3DConfig, random_m3d: RandomM3D, tmp_path: Path) -> None:
    model = random_m3d(config)
    params = load(model, config, tmp_path)
    volume = np.random.default_rng(1).random((2, *config.image), np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(volume)).numpy()
    got = np.asarray(jax.jit(ViT3D(config).apply)({"params": params}, volume))
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


class Projector(torch.nn.Module):
    """M3D's projector after its pooling (spatial_pooling_projector.py)."""

    def __init__(self, width: int, features: int):
        super().__init__()
        self.projector = torch.nn.Sequential(
            torch.nn.Linear(width, features),
            torch.nn.GELU(),
            torch.nn.Linear(features, features),
        )

    def forward(self, x):
        return self.projector(x)


def saved(
    layout: str, folder: Path, random_m3d: RandomM3D
) -> tuple[Any, Projector, dict[str, Any]]:
    """The same encoder in the files that M3D publishes, with what else is in these."""
    model, projector = random_m3d(SMALL), Projector(SMALL.hidden_size, 20).eval()
    bare = model.state_dict()
    other = {"extra.weight": torch.arange(6.0).reshape(2, 3)}
    named = {
        "bare": bare,
        "clip": {f"vision_encoder.{key}": value for key, value in bare.items()}
        | {f"language_encoder.{key}": value for key, value in other.items()},
        "lamed": {f"model.vision_tower.vision_tower.{key}": value for key, value in bare.items()}
        | {f"model.mm_projector.{key}": value for key, value in projector.state_dict().items()}
        | {f"model.seg_module.{key}": value for key, value in other.items()},
    }[layout]
    folder.mkdir()
    torch.save(named, folder / "pretrained_ViT.bin")
    sizes = {
        "img_size": SMALL.image,
        "patch_size": SMALL.patch,
        "hidden_size": SMALL.hidden_size,
        "mlp_dim": SMALL.mlp_size,
        "num_layers": SMALL.num_layers,
        "num_heads": SMALL.num_heads,
    }
    (folder / "config.json").write_text(json.dumps(sizes))
    return model, projector, named


HASTE = pytest.mark.system(haste=True)


@pytest.mark.usefixtures("pickles_opened_here")
@pytest.mark.parametrize(
    "layout", [pytest.param("bare", marks=HASTE), "clip", pytest.param("lamed", marks=HASTE)]
)
def test_published_files_are_read_and_written_back(
    layout: str, tmp_path: Path, random_m3d: RandomM3D
) -> None:
    model, projector, theirs = saved(layout, tmp_path / "theirs", random_m3d)
    import_folder(tmp_path / "theirs", tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    # Newer MONAI has cross-attention weights, which nothing uses.
    assert theirs.keys() - back.keys() == {key for key in theirs if "cross_attn" in key}
    assert all(torch.equal(value, theirs[key]) for key, value in back.items())
    assert verify(tmp_path / "theirs", tmp_path / "ours").same

    params = Imported(tmp_path / "ours").restore()
    volume = np.random.default_rng(1).random((1, *SMALL.image), np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(volume))
        projected = projector(expected).numpy()
    got = jax.jit(ViT3D(SMALL).apply)({"params": params["encoder"]}, volume)
    assert_close(got, expected.numpy())
    if layout == "lamed":
        ours = OurProjector(ProjectorConfig("gelu"), 20)
        assert_close(jax.jit(ours.apply)({"params": params["projector"]}, got), projected)


def assert_close(got: Any, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_keys_of_the_released_encoder() -> None:
    """138 tensors under the names that `pretrained_ViT.bin` has."""
    full = jax.tree.map(lambda x: np.broadcast_to(np.float32(0), x.shape), shapes(ViT3DConfig()))
    theirs = from_ours(TABLE, full)
    assert len(theirs) == 138
    assert sum(value.size for value in theirs.values()) == 87_389_184
    assert theirs["patch_embedding.patch_embeddings.1.weight"].shape == (768, 1024)
    assert theirs["blocks.11.attn.qkv.weight"].shape == (2304, 768)
    assert theirs["blocks.0.mlp.linear2.weight"].shape == (768, 3072)
