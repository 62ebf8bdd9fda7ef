"""Fixtures for every test: the real data, where there is any."""

import os
from pathlib import Path

import pytest

# Real scans and tokenizer ranks stay out of the repository; beside the checkout unless told else.
SHARED = Path(os.environ.get("TUMORCHAIN_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"no real test data at {SHARED} (set TUMORCHAIN_TEST_DATA)")
    return SHARED
