from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tumorchain_jax.data.dataset import write_phantoms
from tumorchain_jax.models.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain import TumorChainConfig
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.preprocess import PreprocessConfig


@pytest.fixture(scope="module", autouse=True)
def _compile_in_haste() -> Iterator[None]:
    """These programs are large and run for a few steps: compiling them is all they cost."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six digital patients on a tiny grid; tests/data finds the same folder already made."""
    folder = tmp_path_factory.getbasetemp() / "phantoms"
    write_phantoms(folder, 0, 6, PreprocessConfig((8, 16, 16)), 512, processes=1)
    return folder


@pytest.fixture(scope="session")
def tiny() -> TumorChainConfig:
    """A model of that grid: one global token and eight cells."""
    return TumorChainConfig(
        encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
        decoder=Qwen2Config(
            vocab_size=512,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=True,
        ),
        roi_slots=4,
    )
