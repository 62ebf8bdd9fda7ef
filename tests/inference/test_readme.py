"""The examples of the README run as they stand."""

import re
from pathlib import Path

import pytest

from tumorchain_jax import inference
from tumorchain_jax.phantoms.patient import make_patient, write_patient

pytestmark = pytest.mark.program


@pytest.mark.system(haste=True)
def test_readme_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = Path(inference.__file__).with_name("README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    write_patient(make_patient(2), tmp_path)
    assert {"ct.nii.gz", "labels.nii.gz"} <= {path.name for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    assert (tmp_path / "out" / "report.html").is_file()
    assert "Is the spleen enlarged?" in capsys.readouterr().out


def test_readme_lists_every_file() -> None:
    folder = Path(inference.__file__).parent
    listed = re.findall(r"^\| `(\w+\.py)` \|", (folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(p.name for p in folder.glob("*.py") if p.name != "__init__.py")
