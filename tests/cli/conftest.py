"""A digital patient for all tests of the command line, and a cache of their own."""

from pathlib import Path

import pytest

from tumorchain_jax.phantoms.patient import make_patient, write_patient


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """CT and label map of a digital patient with a lesion in the liver."""
    return write_patient(make_patient(2), tmp_path_factory.mktemp("patient"))


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segmentations and downloads of a test are its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
