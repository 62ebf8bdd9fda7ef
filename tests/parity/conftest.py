"""What the parity tests share: float32 products in full, PyTorch models with nothing constant."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from tumorchain_jax.bench.torch_training import m3d_encoder
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.models.weight_map import Table
from tumorchain_jax.weights.matching import Family, load_arrays
from tumorchain_jax.weights.tensor_files import read_file


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    """Accelerators round the factors of float32 products unless told not to."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="session")
def randomised() -> Callable[[Any], Any]:
    """Every parameter random, biases and norms too: a constant one would hide a mix-up."""
    torch = pytest.importorskip("torch")

    def randomise(model: Any, gain: float = 1.4) -> Any:
        """Weights of this many standard deviations of what keeps a signal's size."""
        torch.manual_seed(0)
        spread = gain * model.config.get_text_config().hidden_size ** -0.5
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, float("norm" in name), spread)
        return model.eval()

    return randomise


@pytest.fixture(scope="session")
def m3d_vit() -> Callable[[ViT3DConfig], Any]:
    """Builds the 3D encoder out of MONAI's blocks, as M3D does."""
    pytest.importorskip("torch")
    pytest.importorskip("monai")
    return lambda config: m3d_encoder(config).eval()


@pytest.fixture(scope="session")
def torch_outputs() -> Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Runs a language model of transformers: final hidden states, every layer's output, logits."""
    torch = pytest.importorskip("torch")

    def run(model: Any, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        outputs: list[Any] = []
        [layers] = [module for name, module in model.named_modules() if name.endswith(".layers")]
        hooks = [
            layer.register_forward_hook(lambda _, __, output: outputs.append(output))
            for layer in layers
        ]
        with torch.no_grad():
            out = model(torch.from_numpy(tokens), output_hidden_states=True)
        for hook in hooks:
            hook.remove()
        return out.hidden_states[-1].numpy(), torch.stack(outputs).numpy(), out.logits.numpy()

    return run


@pytest.fixture(scope="session")
def load_weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """A PyTorch state dict as our parameters, by the reader that `convert import` uses."""

    def load(table: Table, theirs: dict, like: Any, passthrough: tuple[str, ...] = ()) -> dict:
        path = tmp_path_factory.mktemp("weights") / "model.safetensors"
        save_file({key: np.ascontiguousarray(value) for key, value in theirs.items()}, path)
        shapes = {path: tuple(leaf.shape) for path, leaf in flatten(like).items()}
        family = Family("test", {}, table, shapes, passthrough=passthrough)
        return unflatten(load_arrays(path, family, read_file(path)))

    return load
