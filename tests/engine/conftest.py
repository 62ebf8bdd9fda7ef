import json
from collections.abc import Callable
from pathlib import Path

import pytest

MakeCases = Callable[..., Path]


def write_cases(root: Path, count: int) -> Path:
    """Write a list of cases with reports that the stand-in agents understand."""
    (root / "reports").mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        name = f"c-{number}"
        density = "hypodense" if number % 3 else "hyperdense"
        text = f"The liver shows a {density} mass of {10 + number % 50} mm in segment VII.\n"
        text += "Impression: tumour of the liver, T2 N0 M0.\n"
        if number % 10 == 5:
            text = "Normal CT of the abdomen.\n"
        (root / "reports" / f"{name}.txt").write_text(text)
        case = {
            "case": name, "patient": f"p-{number // 2}", "scans": [f"s-{number}"],
            "radiology": [f"reports/{name}.txt"], "language": "en",
        }  # fmt: skip
        if number % 4 == 0:
            (root / "reports" / f"{name}-p.txt").write_text(f"pT2 pN0, specimen {number}\n")
            case["pathology"] = [f"reports/{name}-p.txt"]
        lines.append(json.dumps(case))
    (root / "cases.jsonl").write_text("\n".join(lines) + "\n")
    return root / "cases.jsonl"


@pytest.fixture
def make_cases(tmp_path: Path) -> MakeCases:
    """Makes a list of so many cases in `tmp_path / "cases"`."""
    return lambda count: write_cases(tmp_path / "cases", count)


@pytest.fixture(scope="module")
def list_cases(tmp_path_factory: pytest.TempPathFactory) -> MakeCases:
    """Makes a list of so many cases in a folder of its own."""
    return lambda count: write_cases(tmp_path_factory.mktemp("cases"), count)
