import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.reasoning.trace import OrganMention, Outcome, Round, StopReason
from tumorchain_jax.report import page
from tumorchain_jax.report import report as report_module
from tumorchain_jax.report.record import SCHEMA_VERSION, View
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.verdict import Confidence, Verdict
from tumorchain_jax.scan.preprocess import GridTransform
from tumorchain_jax.segmentation.masks import MaskOrigin
from tumorchain_jax.segmentation.statistics import OrganStatistics

MakeReport = Callable[..., Report]

FIELDS = [
    *("schema_version", "scan", "question", "answer", "conclusion", "rounds", "stop_reason"),
    *(
        "masks",
        "organs",
        "preprocessing",
        "versions",
        "model",
        "weights_sha256",
        "seed",
        "device",
        "seconds",
        "warnings",
    ),
    "notice",
]
ROUND_FIELDS = ["text", "organs", "tokens_in", "tokens_out", "complete", "mean_log_probability"]
ORGAN_FIELDS = [
    *("organ", "label", "matched", "span", "outcome", "cells", "box", "box_mm"),
    "abnormal_probability",
]


def saved(report: Report, folder: Path) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (report.save(folder) / "report.json").read_text("utf-8")
    return json.loads(text, parse_constant=refuse)


def test_the_fields_and_their_order(make_report: MakeReport, tmp_path: Path) -> None:
    record = saved(make_report(warnings=("no mask",)), tmp_path / "out")
    assert list(record) == FIELDS
    assert list(record["rounds"][0]) == ROUND_FIELDS
    assert list(record["rounds"][0]["organs"][0]) == ORGAN_FIELDS
    assert record["notice"] == NOTICE
    assert record["warnings"] == ["no mask"]
    assert record["seconds"] == {"read": 0.5}
    assert record["stop_reason"] == "no_new_organ"
    assert record["preprocessing"]["to_world"][3] == [0, 0, 0, 1]
    assert make_report().to_dict() == saved(make_report(), tmp_path / "again")


def test_it_names_the_scan_and_the_model(make_report: MakeReport) -> None:
    report = make_report(source="scans/ct.nii.gz", model="nano")
    record = report.to_dict()
    assert (record["schema_version"], record["model"]) == ("1.3", "nano")
    assert (record["scan"], report.name) == ("scans/ct.nii.gz", "ct.nii.gz")


def test_truth_is_there_only_when_known(make_report: MakeReport, tmp_path: Path) -> None:
    assert saved(make_report(truth="one cyst"), tmp_path / "out")["truth"] == "one cyst"
    assert list(make_report(truth="x").to_dict()) == [*FIELDS, "truth"]


def test_masks_and_what_they_measure(make_report: MakeReport, tmp_path: Path) -> None:
    liver = OrganStatistics(1000, 12.5, 55.25, cut=False)
    report = make_report(
        masks=MaskOrigin("predicted", "nano", {"part": "ab"}), organs={"liver": liver}
    )
    record = saved(report, tmp_path / "out")
    assert record["masks"] == {"kind": "predicted", "source": "nano", "weights": {"part": "ab"}}
    assert record["organs"] == {
        "liver": {"voxels": 1000, "volume_ml": 12.5, "mean_hu": 55.25, "cut": False}
    }
    assert make_report().to_dict()["masks"] is None


def test_an_organ_and_its_box(make_report: MakeReport) -> None:
    organ = make_report().to_dict()["rounds"][0]["organs"][0]
    # Cells 0 and 17 of 8 x 4 x 4 are (0, 0, 0) and (1, 0, 1).
    assert organ["box"] == [0, 0, 0, 0.25, 0.25, 0.5]
    # Voxel edges in mm: 4 of 16 slices of 4.5 mm from -200 up, 8 rows of 1.5 mm from 120 back,
    # 16 columns of 2 mm from 31 leftward, each half a voxel before its first centre.
    assert organ["box_mm"] == pytest.approx([0, 108.75, -202.25, 32, 120.75, -184.25])
    assert organ["span"] == [11, 16]
    assert organ["matched"] == "liver"
    assert organ["cells"] == [0, 17]


def test_an_organ_without_cells_has_no_box(make_report: MakeReport) -> None:
    absent = OrganMention(55, "brain", "brain", (4, 9), "not_in_mask", (), None)
    report = make_report(Round("The brain.", (absent,), 1, 2, True, -1.0))
    organ = report.to_dict()["rounds"][0]["organs"][0]
    assert organ["box"] is organ["box_mm"] is organ["abnormal_probability"] is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_number_breaks_the_json(make_report: MakeReport, tmp_path: Path, number: float) -> None:
    report = make_report(
        Round("", (), 0, 0, True, number),
        preprocessing={"level": number, "shape": np.array([1, 2]), "n": np.int64(3)},
        seconds={"read": number},
    )
    record = saved(report, tmp_path / "out")
    assert record["rounds"][0]["mean_log_probability"] is None
    assert record["preprocessing"] == {"level": None, "shape": [1, 2], "n": 3}


def test_text_of_any_kind_is_written(make_report: MakeReport, tmp_path: Path) -> None:
    question = 'Leber? 肝臓 "\\ \0 \u2028'
    report = make_report(question=question, source="\udcff.nii.gz")
    assert saved(report, tmp_path / "out")["question"] == question
    assert "肝臓" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_both_files_or_none(
    make_report: MakeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_report().save(tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]

    def fail(report: Report) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(report_module, "render", fail)
    with pytest.raises(RuntimeError, match="no page"):
        make_report().save(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_earlier_report_is_kept_unless_told(make_report: MakeReport, tmp_path: Path) -> None:
    folder = make_report().save(tmp_path / "out")
    with pytest.raises(InputError, match=r"a new one \(or --overwrite\)"):
        make_report(seed=8).save(folder)
    assert json.loads((folder / "report.json").read_text())["seed"] == 7
    make_report(seed=8).save(folder, overwrite=True)
    assert json.loads((folder / "report.json").read_text())["seed"] == 8


# ------------------------------------------------------------- in a notebook


def test_repr_is_one_short_line(make_report: MakeReport) -> None:
    report = make_report()
    assert repr(report) == "Report(ct.nii.gz: 'Is there a lesion?' -> 'no lesion', 1 round)"
    assert report.rounds is report.trace.rounds


def test_notebook_shows_the_page_in_a_frame(make_report: MakeReport) -> None:
    report = make_report(question='<script>"')
    shown = report._repr_html_()
    (frame,) = re.findall(r'<iframe sandbox srcdoc="([^"]*)" style="[^"]*"></iframe>', shown)
    assert unescape(frame) == page.render(report)


# -------------------------------------------------------- the documented schema


def paths(value: object, path: str = "") -> Iterator[str]:
    """Every field of a record: `a.b`, `a[].b` in lists, `a.*.b` in objects with keys of data."""
    if isinstance(value, dict):
        data = path in ("versions", "seconds", "organs", "masks.weights", "preprocessing")
        for key, item in value.items():
            inside = "*" if data else key
            yield from paths(item, f"{path}.{inside}" if path else inside)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from paths(item, f"{path}[]")
    else:
        yield path


def crop_of(report: Report) -> View:
    """A crop at a third of the spacing of the scan's grid, from its first corner."""
    to_world = report.transform.to_world @ np.diag([1 / 3, 1 / 3, 1 / 3, 1])
    return View("liver", report.image, GridTransform(report.transform.grid, to_world))


def test_cells_of_a_crop_are_located_in_it_and_drawn_on_it(make_report: MakeReport) -> None:
    plain = OrganMention(5, "liver", "liver", (11, 16), "looked_at", (0, 17), 0.25)
    cropped = replace(plain, crop=3)
    report = make_report(
        Round("Now the liver", (cropped,), 300, 40, True, -0.5), crops={3: crop_of(make_report())}
    )
    box, whole = (np.reshape(report.box_mm(each), (2, 3)) for each in (cropped, plain))
    np.testing.assert_allclose((box[1] - box[0]) * 3, whole[1] - whole[0])
    record = report.to_dict()
    (crop,) = record["crops"]
    assert crop["region"] == record["rounds"][0]["organs"][0]["crop"] == "liver"
    assert crop["spacing_mm"] == pytest.approx([1.5, 0.5, 2 / 3])
    extent = np.diff(np.reshape(crop["box_mm"], (2, 3)), axis=0)[0]
    np.testing.assert_allclose(extent, [32 * 2 / 3, 32 * 0.5, 16 * 1.5])
    assert "Read in a crop at 1.5 x 0.7 x 0.7 mm a voxel." in page.render(report)
    assert "crops" not in make_report().to_dict()


def test_readme_describes_every_field_of_the_record(make_report: MakeReport) -> None:
    liver = OrganMention(5, "liver", "liver", (11, 16), "looked_at", (0, 17), 0.25, crop=3)
    record = make_report(
        Round("The liver", (liver,), 300, 40, True, -0.5),
        crops={3: crop_of(make_report())},
        masks=MaskOrigin("predicted", "nano", {"model": "ab"}),
        organs={"liver": OrganStatistics(1000, 12.5, 55.25, cut=False)},
        truth="one cyst",
        forced=("noise: found",),
        verdict=Verdict("yes/no", "", Confidence(None, None, None, ""), "real CT", None, ""),
    ).to_dict()
    readme = (Path(report_module.__file__).parent / "README.md").read_text("utf-8")
    described = re.findall(r"^\| `([^`]+)` \|", readme.split("## report.json")[1], re.MULTILINE)
    assert described == [*dict.fromkeys(paths(record))]
    assert f"version {SCHEMA_VERSION}" in readme
    for words in (*get_args(Outcome), *get_args(StopReason)):
        assert f"`{words}`" in readme
