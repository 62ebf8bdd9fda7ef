"""The parser: groups, flags of one meaning, refusals; and the reference that is made from it."""

import re
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.cli.parser import GROUPS, build_parser
from tumorchain_jax.cli.reference import README, reference
from tumorchain_jax.phantoms.settings import KINDS

WRITE_IT = "run python -m tumorchain_jax.cli.reference"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that must be refused before anything is loaded; return its one line."""
    try:
        code = main(words)
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    return captured.err


def test_reference_is_what_the_parser_says() -> None:
    assert README.read_text("utf-8") == reference(), WRITE_IT


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    first, *_ = text.split("Data:")
    assert re.findall(r"^  (\w+) ", first.split("Start here:")[1], re.MULTILINE) == [
        *("demo", "analyze", "segment", "train", "evaluate", "calibrate", "judge", "compare")
    ]
    listed = re.findall(r"^  ([a-z]\w+) +\S", text, re.MULTILINE)
    files = {path.stem for path in README.parent.glob("*.py")}
    assert files - {*listed} == {
        *(
            "__init__",
            "bus_chains",
            "evaluate_endpoint",
            "engine_results",
            "engine_review",
            "engine_score",
            "main",
            "options",
            "parser",
            "printing",
            "web_input",
            "reference",
        ),
        "segmenter_flags",
    }
    assert len(listed) == sum(map(len, GROUPS.values()))


def test_short_flags_mean_the_same_everywhere() -> None:
    meanings: dict[str, set[str]] = {}
    for commands in build_parser()[1].values():
        for command in commands:
            for action in command._actions:
                for flag in action.option_strings:
                    if not flag.startswith("--"):
                        meanings.setdefault(flag, set()).add(action.dest)
    assert {flag: dests for flag, dests in meanings.items() if len(dests) > 1} == {}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["segment", "-i", "a", "-ot", "dicom_seg"], "unknown flag -ot (put a space between -o"),
        (["segment", "-i", "a", "-oout"], "unknown flag -oout (put a space between -o"),
        (["segment", "-i", "a", "-o", "b", "-q"], "unknown flag -q (did you mean --quiet?)"),
        (["segment", "-i", "a", "-o", "b", "--previews"], "unknown flag --previews"),
        (["analyze", "-i", "a", "-o", "b", "--over"], "unknown flag --over (did you mean --over"),
        (["analyze", "-i", "a", "-o", "b", "-ml"], "unknown flag -ml (put a space between -m"),
        (["train", "--config", "c", "--workdir", "w", "-o3"], "unknown flag -o3"),
        (["\x1b[31mred"], r"invalid choice: '\x1b[31mred'"),
        (["info", "extra\x1b[2J"], "unexpected arguments: extra [2J"),
        (["chat", "--tokens", "many\nlines"], "invalid int value: 'many"),
        (["evaluate", "--relabel", "1=5"], "--relabel: found no label map, expected one of --real"),
        (["evaluate", "--relabel", "1=5,1=6"], "found '1=5,1=6', expected pairs N=ID of 1 to 117"),
        (["evaluate", "--relabel", "1=118"], "expected pairs N=ID of 1 to 117, each label once"),
        (["evaluate", "--relabel", "1"], "expected pairs N=ID of 1 to 117, each label once"),
    ],
)
def test_flags_that_are_no_flags(
    words: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found in refused(words, capsys)


def test_every_kind_of_digital_patients_can_be_asked_for() -> None:
    _, commands = build_parser()
    offered = {
        tuple(action.choices)
        for group in commands.values()
        for command in group
        for action in command._actions
        if action.dest == "kind" and action.choices
    }
    assert offered == {KINDS}


def test_roi_subset_in_both_spellings() -> None:
    parser, _ = build_parser()
    for flag in ("-rs", "--roi-subset", "--roi_subset"):
        assert parser.parse_args(["segment", flag, "liver"]).roi_subset == ["liver"]


@pytest.mark.parametrize(
    ("path", "found"),
    [("nul\0byte.nii.gz", "null"), ("x" * 300, "File name too long")],
)
@pytest.mark.parametrize("flag", ["-i", "-o", "-m"])
def test_paths_that_no_file_can_have(
    flag: str, path: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan = tmp_path / "a.nii.gz"
    scan.touch()
    paths = {"-i": str(scan), "-o": str(tmp_path / "out"), flag: str(tmp_path / path)}
    words = [word for pair in paths.items() for word in pair]
    line = refused(["analyze", *words], capsys)
    assert found in line
    assert "expected a path" in line
    assert len(line) < 300


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "-i", "{scans}", "-o", "{scans}/out"],
        ["analyze", "-i", "{scans}/dicom", "-o", "{scans}/dicom/out"],
        ["segment", "-i", "{scans}", "-o", "{scans}/seg", "-ml"],
        ["segment", "-i", "{scans}/dicom", "-o", "{scans}/dicom/seg.nii.gz"],
    ],
)
def test_output_inside_the_input(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dicom").mkdir()
    (tmp_path / "dicom" / "1.dcm").touch()
    before = sorted(tmp_path.rglob("*"))
    line = refused([word.format(scans=tmp_path) for word in words], capsys)
    assert "found a place inside" in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["x.png", "x.PNG", "x.txt", "x.json", "x.NII.GZ", "x.nrrd"])
def test_segment_writes_no_other_format(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ct.nii.gz").touch()
    words = ["segment", "-i", str(tmp_path / "ct.nii.gz"), "-o", str(tmp_path / name)]
    assert "expected .nii or .nii.gz, or a folder" in refused(words, capsys)


def test_demo_spares_a_folder_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = tmp_path / "out" / "ct"
    earlier.mkdir(parents=True)
    (earlier / "report.json").write_text("mine")
    line = refused(["demo", "-o", str(tmp_path / "out")], capsys)
    assert "expected a new one (or --overwrite)" in line
    (earlier / "notes.txt").write_text("mine")
    line = refused(["demo", "-o", str(tmp_path / "out"), "--overwrite"], capsys)
    assert "found notes.txt, which is no part of a report" in line
    assert (earlier / "report.json").read_text() == "mine"
