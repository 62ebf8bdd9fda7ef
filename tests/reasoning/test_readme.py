"""The README's table from paper to code names what exists."""

import ast
import re
from pathlib import Path

import tumorchain_jax

PACKAGE = Path(tumorchain_jax.__file__).parent
README = (PACKAGE / "reasoning" / "README.md").read_text()
REFERENCES = re.findall(r"`([\w/]+\.py): ([\w.]+)`", README)


def definitions(file: Path) -> set[str]:
    """Functions and classes of a file, methods as `Class.method`."""
    kinds = ast.FunctionDef | ast.ClassDef
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, kinds):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, kinds)}
    return names


def test_paper_to_code_names_exist() -> None:
    assert len(REFERENCES) > 20
    missing = [
        f"{file}: {name}"
        for file, name in REFERENCES
        if not (PACKAGE / file).is_file() or name not in definitions(PACKAGE / file)
    ]
    assert missing == []


def test_paper_to_code_has_every_equation() -> None:
    rows = re.findall(r"^\| (\d)[ ,|].*\.py: ", README, re.MULTILINE)
    assert sorted(set(rows)) == list("12345678")


def test_readme_lists_the_files_of_the_room() -> None:
    listed = set(re.findall(r"^\| `(\w+\.py)` \|", README, re.MULTILINE))
    files = {file.name for file in (PACKAGE / "reasoning").glob("*.py")} - {"__init__.py"}
    assert listed == files
