"""Outputs of commands that are killed, run out of disk, or run in a poor locale."""

import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.phantoms.patient import make_patient

pytestmark = pytest.mark.system(haste=True)

# Puts a rule in the networks' place, and does as it is asked before the n-th organ is written.
SEGMENT = """
import os, resource, signal, sys
import numpy as np
from tumorchain_jax.cli.main import main
from tumorchain_jax.inference import segment_files
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation import factory
from tumorchain_jax.segmentation.total import OrganModel, TotalSegmenter

def choose(*flags, **more):
    halves = lambda scan: Volume((scan.voxels > 0).astype(np.uint8), scan.affine)
    return TotalSegmenter("rule", (OrganModel("rule", (0, *range(1, 41)), halves, lambda: ""),))

factory.make_segmenter = choose
write, written, mode = segment_files.write_labels, [], sys.argv[1]

def then(*arguments):
    write(*arguments)
    written.append(arguments[0])
    if len(written) == 20 and mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

segment_files.write_labels = then
if mode == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
sys.argv[1:] = ["segment", *sys.argv[2:]]
sys.exit(main())
"""
ANALYZE = """
import resource, sys
from tumorchain_jax.cli.main import main
from tumorchain_jax.inference import analyzer
limit = int(sys.argv[1])
check = analyzer.Runner.check_question
def then(*arguments):
    check(*arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
analyzer.Runner.check_question = then
sys.argv[1:] = ["analyze", *sys.argv[2:]]
sys.exit(main())
"""


def run(script: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )


@pytest.fixture
def ct(tmp_path: Path) -> Path:
    scan = make_patient(1).ct
    image = nib.Nifti1Image(scan.voxels.astype(np.int16), scan.affine)
    nib.save(image, tmp_path / "scan.nii.gz")
    return tmp_path / "scan.nii.gz"


def test_segment_killed_while_it_writes_leaves_nothing_in_the_way(ct: Path, tmp_path: Path) -> None:
    out = tmp_path / "organs"
    assert run(SEGMENT, "kill", "-i", ct, "-o", out).returncode == -9
    assert not out.exists()
    assert run(SEGMENT, "write", "-i", ct, "-o", out).returncode == 0
    first = sorted(path.name for path in out.iterdir())
    assert len(first) == 40
    stamp = (out / "liver.nii.gz").stat().st_mtime_ns
    assert run(SEGMENT, "kill", "-i", ct, "-o", out, "--overwrite").returncode == -9
    assert sorted(path.name for path in out.iterdir()) == first
    assert (out / "liver.nii.gz").stat().st_mtime_ns == stamp
    assert run(SEGMENT, "write", "-i", ct, "-o", out, "--overwrite").returncode == 0
    assert (out / "liver.nii.gz").stat().st_mtime_ns > stamp
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["organs", "seg.nii.gz"])
def test_segment_on_a_full_disk_exits_2_and_leaves_nothing(
    name: str, ct: Path, tmp_path: Path
) -> None:
    done = run(SEGMENT, "full", "-i", ct, "-o", tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name}: output: found File too large, expected a place to write to" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["scan.nii.gz"]


def test_analyze_on_a_full_disk_exits_2_and_leaves_nothing(ct: Path, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ("-i", ct, "-o", tmp_path / "out", "--segmenter", "none")
    done = run(ANALYZE, 2000, *words, **cache)
    assert (done.returncode, done.stdout) == (2, "")
    assert "out: output: found File too large, expected a place to write to" in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} - {"cache"} == {"scan.nii.gz"}


def test_question_in_a_locale_without_utf_8(ct: Path, tmp_path: Path) -> None:
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    words = ("-i", ct, "-o", tmp_path / "out", "--segmenter", "none", "-q", "Où est la lésion ?")
    done = run(ANALYZE, -1, *words, **poor)
    assert (done.returncode, done.stdout) == (2, "")
    assert "question: text: found half of a character (U+DCC3), expected text in UTF-8" in (
        done.stderr
    )
    assert done.stderr.count("\n") == 1
