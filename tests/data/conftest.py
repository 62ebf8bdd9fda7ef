from pathlib import Path

import pytest

from tumorchain_jax.data.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six digital patients on a tiny grid; tests/training finds the same folder already made."""
    folder = tmp_path_factory.getbasetemp() / "phantoms"
    write_phantoms(folder, 0, 6, PreprocessConfig((8, 16, 16)), 512, processes=1)
    return folder
