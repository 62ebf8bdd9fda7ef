"""What the parity tests share: float32 products in full, PyTorch models with nothing constant."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig


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
    torch = pytest.importorskip("torch")
    blocks = pytest.importorskip("monai.networks.blocks")

    class M3DViT(torch.nn.Module):
        """M3D-CLIP's (LaMed/src/model/multimodal_encoder/vit.py), patch features only."""

        def __init__(self, config: ViT3DConfig):
            super().__init__()
            width, heads = config.hidden_size, config.num_heads
            self.patch_embedding = blocks.PatchEmbeddingBlock(
                1, config.image, config.patch, width, heads, proj_type="perceptron"
            )
            self.blocks = torch.nn.ModuleList(
                blocks.TransformerBlock(width, config.mlp_size, heads)
                for _ in range(config.num_layers)
            )
            self.norm = torch.nn.LayerNorm(width)
            self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, width))

        def forward(self, volume):
            x = self.patch_embedding(volume[:, None])
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
            for block in self.blocks:
                x = block(x)
            return self.norm(x)[:, 1:]

    return lambda config: M3DViT(config).eval()


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
