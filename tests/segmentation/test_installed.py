"""The program TotalSegmentator, here a script that keeps what it was told."""

import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.factory import make_segmenter
from tumorchain_jax.segmentation.installed import installed_totalsegmentator

SCRIPT = """#!{python}
import sys
from pathlib import Path
import nibabel as nib
import numpy as np
words = sys.argv[1:]
with Path(__file__).with_name("calls").open("a") as calls:
    calls.write(" ".join(words) + "\\n")
if "--version" in words:
    print({version!r})
    sys.exit()
ct = nib.load(words[words.index("-i") + 1])
hu = np.asarray(ct.dataobj)
if hu.max() < 0:
    print("first line\\nno GPU, no luck", file=sys.stderr)
    sys.exit(3)
labels = np.where(hu > 100, 51, np.where(hu > 0, 5, 0)).astype(np.uint8)
nib.save(nib.Nifti1Image(labels, ct.affine), words[words.index("-o") + 1])
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts it on the PATH; its calls are the lines of the file `calls` beside it."""
    folder = tmp_path / "folder of programs"
    folder.mkdir()
    path = folder / "TotalSegmentator"
    path.write_text(SCRIPT.format(python=sys.executable, version="2.18.0"))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    return folder / "calls"


def ct(top: float = 200.0) -> Volume:
    voxels = np.linspace(top - 400, top, 12**3, dtype=np.float32).reshape(12, 12, 12)
    return Volume(voxels, np.diag([-1.0, -1.0, 3.0, 1.0]))


def test_scan_is_handed_over(program: Path) -> None:
    scan = ct()
    segmenter = make_segmenter("totalsegmentator", fast=True)
    found = segmenter(scan, None)
    expected = np.where(scan.voxels > 100, 51, np.where(scan.voxels > 0, 5, 0))
    np.testing.assert_array_equal(found.voxels, expected)
    np.testing.assert_array_equal(found.affine, scan.affine)
    first, line = program.read_text().splitlines()
    assert first == "--version"
    assert line.endswith("--ml --quiet --fast")


def test_it_is_asked_for_some_organs(program: Path) -> None:
    segmenter = make_segmenter("totalsegmentator", organs=["liver", "heart"], order=3)
    assert set(np.unique(segmenter(ct(), ["liver"]).voxels)) == {0, 5}
    identity = segmenter.models[0].identity()
    flags = "--ml --quiet --resampling_order 3 --roi_subset heart liver"
    assert identity == f"TotalSegmentator 2.18.0 {flags}"
    assert program.read_text().splitlines()[1].endswith(flags)


def test_failure_is_reported(program: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^TotalSegmentator failed with 3: no GPU, no luck$"):
        make_segmenter("totalsegmentator")(ct(top=-1.0), None)


def test_another_version_is_refused(program: Path) -> None:
    path = program.with_name("TotalSegmentator")
    path.write_text(SCRIPT.format(python=sys.executable, version="1.5.7"))
    with pytest.raises(InputError, match=r"version: found 1\.5\.7, expected TotalSegmentator 2"):
        make_segmenter("totalsegmentator")(ct(), None)
    assert program.read_text().splitlines() == ["--version"]


def test_without_it_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"found no such program.*pip install TotalSegmentator"):
        installed_totalsegmentator()
