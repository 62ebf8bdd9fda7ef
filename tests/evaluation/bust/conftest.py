"""A small study: the cases of made-up pictures."""

from pathlib import Path

import pytest
from bust_pictures import make, speckle

from tumorchain_jax.evaluation.bust.cases import Rules, write_cases


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve cases: five benign, four malignant, three normal."""
    root = tmp_path_factory.mktemp("study")
    made = make(root / "data")
    for number in range(12):
        label = ("benign", "malignant", "benign", "normal")[number % 4]
        label = "malignant" if number == 10 else label
        birads = {"benign": "3", "malignant": "4c", "normal": "1"}[label]
        made.add(f"case{number}", speckle(number), label, f"p{number}", birads=birads)
    write_cases(made.write(), root / "cases", Rules())
    return root / "cases"
