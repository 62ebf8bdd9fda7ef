"""`tumorchain segment`, with a network that is a rule of the HU."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pydicom
import pytest
from dicom_series import write_series
from PIL import Image

from tumorchain_jax import NOTICE
from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.cli.main import main
from tumorchain_jax.inference import segment_files
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation import factory
from tumorchain_jax.segmentation.total import OrganModel, TotalSegmenter

Segment = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ct(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    hu = rng.normal(0, 300, (14, 15, 16)).astype(np.int16)
    affine = np.array([[0, -2, 0, 30], [1.8, 0, 0, 5], [0, 0, -2.5, 90], [0, 0, 0, 1.0]])
    nib.save(nib.Nifti1Image(hu, affine), tmp_path / "scan.nii.gz")
    return tmp_path / "scan.nii.gz"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Puts a rule in the networks' place: the liver is soft, the spleen softer, the heart none."""
    calls: list[dict[str, Any]] = []

    def predict(scan: Volume) -> Volume:
        local = np.where(scan.voxels > 50, 1, np.where(scan.voxels < -50, 2, 0))
        return Volume(local.astype(np.uint8), scan.affine)

    def choose(*flags: Any, **more: Any) -> TotalSegmenter:
        calls.append({"flags": flags, **more})
        rule = OrganModel("rule", (0, 5, 1, 51), predict, lambda: "sha of a rule")
        return TotalSegmenter("rule of thumb", (rule,))

    monkeypatch.setattr(factory, "make_segmenter", choose)
    return calls


@pytest.fixture
def plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the scan of noise and the rule's masks for plausible."""
    for check in ("check_scan", "check_labels"):
        monkeypatch.setattr(segment_files, check, lambda *_: [])


@pytest.fixture
def segment(plausible: None, command: Segment) -> Segment:
    return command


@pytest.fixture
def command(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> Segment:
    """Run the command: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        try:
            code = main(["segment", *map(str, words)])
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_implausible_scan_is_refused_unless_forced(
    ct: Path, tmp_path: Path, command: Segment
) -> None:
    out = tmp_path / "seg.nii.gz"
    code, said, errors = command("-i", ct, "-o", out)
    assert (code, said, errors.count("\n"), out.exists()) == (2, "", 1, False)
    assert f"{ct}: noise: found" in errors
    assert "--force" in errors
    code, said, errors = command("-i", ct, "-o", out, "--force", "--json")
    assert (code, out.is_file()) == (0, True)
    facts = json.loads(said)
    assert facts["forced"][0].startswith("noise: found")
    assert facts["warnings"]
    lines = [*facts["forced"], *facts["warnings"]]
    assert [line.split(f"{ct}: ")[1] for line in errors.splitlines()] == lines


def expected(ct: Path) -> np.ndarray:
    hu = read_ct(ct).voxels
    return np.where(hu > 50, 5, np.where(hu < -50, 1, 0))


def test_one_label_map(ct: Path, tmp_path: Path, segment: Segment) -> None:
    out = tmp_path / "new" / "seg.nii.gz"
    code, said, errors = segment("-i", ct, "-o", out, "-s")
    assert (code, errors) == (0, "")
    assert f"{out}: 2 organs found by rule of thumb, " in said
    assert said.endswith(f"{NOTICE}\n")
    np.testing.assert_array_equal(read_labels(out, read_ct(ct)).voxels, expected(ct))
    image = nib.load(out)
    assert image.get_data_dtype() == np.uint8
    np.testing.assert_allclose(image.affine, nib.load(ct).affine)
    assert bytes(image.header["descrip"]).rstrip(b"\0") == b"segmented by rule of thumb"
    (table,) = image.header.extensions
    text = table.get_content().decode()
    for number, name in ((1, "spleen"), (5, "liver"), (51, "heart")):
        assert f'<Label Key="{number}" ' in text
        assert f">{name}</Label>" in text
    statistics = json.loads((out.parent / "seg.statistics.json").read_text())
    assert list(statistics) == ["spleen", "liver", "heart"]
    voxels = (expected(ct) == 5).sum()
    assert statistics["liver"]["volume"] == pytest.approx(voxels * 2 * 1.8 * 2.5, rel=1e-6)
    assert statistics["heart"] == {"volume": 0.0, "intensity": 0.0, "cut": False}
    assert sorted(path.name for path in out.parent.iterdir()) == [
        "seg.nii.gz",
        "seg.statistics.json",
    ]


def test_dicom_seg_and_contact_sheet_beside_the_label_map(
    ct: Path, tmp_path: Path, segment: Segment
) -> None:
    pytest.importorskip("highdicom")
    series = write_series(read_ct(ct), tmp_path / "series")
    out = tmp_path / "new" / "seg.nii.gz"
    code, _, errors = segment("-i", series, "-o", out, "--dicom", "--preview")
    assert (code, errors) == (0, "")
    names = ["seg.nii.gz", "seg.preview.png", "seg.segmentation.dcm"]
    assert sorted(path.name for path in out.parent.iterdir()) == names
    made = pydicom.dcmread(out.parent / "seg.segmentation.dcm")
    assert [each.SegmentLabel for each in made.SegmentSequence] == ["spleen", "liver"]
    labels = read_labels(out, read_ct(series)).voxels
    assert made.pixel_array.sum() == np.count_nonzero(labels)
    assert (made.PatientID, made.SegmentSequence[0].SegmentAlgorithmType) == ("T-0042", "AUTOMATIC")
    with Image.open(out.parent / "seg.preview.png") as sheet:
        assert len(sheet.convert("RGB").getcolors(1 << 24)) > 50
    # Of an earlier run nothing stays that the new one does not have.
    assert segment("-i", series, "-o", out, "--overwrite")[0] == 0
    assert sorted(path.name for path in out.parent.iterdir()) == names[:1]
    code, _, errors = segment("-i", ct, "-o", tmp_path / "other.nii.gz", "--dicom")
    assert code == 2
    assert "no DICOM series" in errors


def test_a_file_an_organ(ct: Path, tmp_path: Path, segment: Segment) -> None:
    out = tmp_path / "organs"
    assert segment("-i", ct, "-o", out, "-s", "--quiet") == (0, "", "")
    assert sorted(path.name for path in out.iterdir()) == [
        "heart.nii.gz",
        "liver.nii.gz",
        "spleen.nii.gz",
        "statistics.json",
    ]
    for name, number in (("liver", 5), ("heart", 51)):
        mask = np.asarray(nib.load(out / f"{name}.nii.gz").dataobj)
        np.testing.assert_array_equal(mask, expected(ct) == number)


def test_a_subset_of_organs(
    ct: Path, tmp_path: Path, segment: Segment, asked: list[dict[str, Any]]
) -> None:
    out = tmp_path / "seg.nii.gz"
    words = ("-rs", "spleen", "heart", "-ro", "3", "--fast", "--no-cache", "--weights", "w")
    code, said, _ = segment("-i", ct, "-o", out, *words, "--json")
    facts = json.loads(said)
    assert code == 0
    assert facts["found"] == ["spleen"]
    assert facts["weights"] == {"rule": "sha of a rule"}
    assert set(np.unique(np.asarray(nib.load(out).dataobj))) == {0, 1}
    assert asked == [
        {
            "flags": ("jax", "w"),
            "fast": True,
            "order": 3,
            "dtype": "float32",
            "organs": ["spleen", "heart"],
            "cache": None,
            "quiet": False,
        }
    ]


def test_several_scans_with_a_broken_one(ct: Path, tmp_path: Path, segment: Segment) -> None:
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    for name in ("a", "b"):
        shutil.copy(ct, scans / f"{name}.nii.gz")
    (scans / "broken.nii.gz").write_text("no scan")
    code, said, errors = segment("-i", scans, "-o", out, "-ml", "-s", "--json")
    assert code == 2
    assert [facts["output"] for facts in json.loads(said)] == [
        str(out / "a.nii.gz"),
        str(out / "b.nii.gz"),
    ]
    assert errors.count("\n") == 1
    assert "skipped" in errors
    assert "broken.nii.gz" in errors
    assert sorted(path.name for path in out.iterdir()) == [
        f"{name}{ending}" for name in "ab" for ending in (".nii.gz", ".statistics.json")
    ]
    (scans / "broken.nii.gz").unlink()
    code, said, _ = segment("-i", scans, "-o", tmp_path / "each")
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "each" / "b").iterdir())[0] == "heart.nii.gz"


def test_earlier_files_are_kept_unless_told(ct: Path, tmp_path: Path, segment: Segment) -> None:
    out = tmp_path / "seg.nii.gz"
    out.write_text("mine")
    code, said, errors = segment("-i", ct, "-o", out)
    assert (code, said) == (2, "")
    assert "overwrite" in errors
    assert out.read_text() == "mine"
    assert segment("-i", ct, "-o", out, "--overwrite")[0] == 0
    read_labels(out, read_ct(ct))
    folder = tmp_path / "organs"
    assert segment("-i", ct, "-o", folder)[0] == 0
    assert segment("-i", ct, "-o", folder)[0] == 2
    (folder / "mine.txt").write_text("keep")
    code, said, errors = segment("-i", ct, "-o", folder, "--overwrite")
    assert (code, said) == (2, "")
    assert "organs: output: found mine.txt, which is no organ" in errors
    assert (folder / "mine.txt").read_text() == "keep"


def test_what_is_replaced_leaves_nothing_behind(ct: Path, tmp_path: Path, segment: Segment) -> None:
    """Else organs and numbers of two patients would lie side by side."""
    folder, one = tmp_path / "organs", tmp_path / "seg.nii.gz"
    assert segment("-i", ct, "-o", folder, "-s")[0] == 0
    assert segment("-i", ct, "-o", folder, "-rs", "heart", "--overwrite")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["heart.nii.gz"]
    assert segment("-i", ct, "-o", one, "-s")[0] == 0
    one.unlink()
    assert "seg.statistics.json: output: found an existing one" in segment("-i", ct, "-o", one)[2]
    assert segment("-i", ct, "-o", one, "--overwrite")[0] == 0
    assert one.exists()
    assert not (tmp_path / "seg.statistics.json").exists()


def test_a_scan_is_never_written_over(ct: Path, tmp_path: Path, segment: Segment) -> None:
    before = ct.read_bytes()
    liver = tmp_path / "organs" / "liver.nii.gz"
    liver.parent.mkdir()
    shutil.copy(ct, liver)
    for words, found in (
        (("-i", ct, "-o", ct), "output: found the scan "),
        (("-i", ct, "-o", tmp_path, "-ml"), "output: found the scan "),
        (("-i", liver, "-o", liver.parent), "output: found the scan "),
        (("-i", tmp_path, "-o", tmp_path, "-ml"), "-o: found a place inside "),
    ):
        code, said, errors = segment(*words, "--overwrite")
        assert (code, said) == (2, "")
        assert found in errors
    assert ct.read_bytes() == liver.read_bytes() == before


@pytest.mark.parametrize("full", ["write_labels", "write_file"])
def test_a_place_that_cannot_be_written(
    full: str, ct: Path, tmp_path: Path, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"tumorchain_jax.inference.segment_files.{full}", write)
    code, said, errors = segment("-i", ct, "-o", tmp_path / "seg.nii.gz", "-s")
    assert (code, said) == (2, "")
    assert "seg.nii.gz: output: found No space left on device" in errors


def test_the_classes_are_listed_at_once(segment: Segment, asked: list[dict[str, Any]]) -> None:
    code, said, _ = segment("--list-classes")
    assert code == 0
    assert [line.split() for line in said.splitlines()][4] == ["5", "liver"]
    assert len(said.splitlines()) == 117
    listed = json.loads(segment("-lc", "--json")[1])
    assert listed == {str(i): name for i, name in enumerate(TOTALSEGMENTATOR) if i}
    assert asked == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-rs", "livr"], "-rs: found 'livr', expected an organ of `total`; did you mean liver?"),
        (["-rs", "Kidney_Left"], "did you mean kidney_left"),
        (["-rs", "zzz"], "see --list-classes"),
        (["-rs", "liver,spleen"], "put spaces between names"),
        (["-rs", "aorta"], "rule of thumb: -rs: found aorta, expected what it finds: heart, liver"),
        (["-ta", "body"], "invalid choice: 'body'"),
        (["--segmenter", "none"], "invalid choice: 'none'"),
        (["-ro", "9"], "invalid choice: 9"),
    ],
)
def test_what_cannot_be_asked_for(
    words: list[str], found: str, ct: Path, tmp_path: Path, segment: Segment
) -> None:
    code, said, errors = segment("-i", ct, "-o", tmp_path / "out", *words)
    assert (code, said) == (2, "")
    assert errors.count("\n") == 1
    assert found in errors
    assert not (tmp_path / "out").exists()


def test_a_bad_command_line(ct: Path, tmp_path: Path, segment: Segment) -> None:
    twin = tmp_path / "twin.nii.gz"
    shutil.copy(ct, twin)
    assert "-o: found one file for 2 scans" in segment("-i", ct, twin, "-o", tmp_path / "x.nii")[2]
    assert "-o: found a name ending in .mha" in segment("-i", ct, "-o", tmp_path / "x.mha")[2]
    assert "-o: found none" in segment("-i", ct)[2]
    assert "-i: found none" in segment("-o", tmp_path / "x")[2]
    (tmp_path / "file").write_text("")
    assert segment("-i", ct, "-o", tmp_path / "file" / "x.nii.gz")[0] == 2
    assert segment("-i", ct, "-o", tmp_path / "file", "--overwrite")[0] == 2
    (tmp_path / "folder.nii.gz").mkdir()
    assert segment("-i", ct, "-o", tmp_path / "folder.nii.gz", "--overwrite")[0] == 2
