"""Pictures of the scan itself, and the viewer of its slices."""

import base64
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.reasoning.trace import OrganMention, Round
from tumorchain_jax.report.page import render
from tumorchain_jax.report.pictures import Picture
from tumorchain_jax.report.record import View
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.scan_pictures import LESION_COLOUR, Cells, Outlined, ScanPictures
from tumorchain_jax.report.shell import POLICY
from tumorchain_jax.report.small_scan import LESION, small_scan
from tumorchain_jax.report.viewer import script
from tumorchain_jax.report.windows import WINDOWS, level_hu, levels, window_greys
from tumorchain_jax.scan.preprocess import GridTransform
from tumorchain_jax.scan.volume import Volume

MakeReport = Callable[..., Report]

CYAN, LIVER, LIVER_ID = (10, 200, 210), 5, 5
# Voxels of 1 x 1 x 2 mm; i to the patient's right, j to anterior, k to superior.
AFFINE = np.diag([1.0, 1.0, 2.0, 1.0])
SHAPE = (60, 50, 20)


def box(*limits: tuple[int, int]) -> np.ndarray:
    mask = np.zeros(SHAPE, np.uint8)
    mask[tuple(slice(*each) for each in limits)] = 1
    return mask


def volumes(lesion: np.ndarray | None = None) -> dict[str, Volume]:
    """A liver that is widest at k = 9, in a scan whose HU rise with k."""
    labels = LIVER_ID * (box((5, 20), (5, 20), (5, 15)) | box((5, 30), (5, 30), (9, 10)))
    hu = np.broadcast_to(np.arange(20, dtype=np.float32) * 10 - 100, SHAPE)
    found = {"ct": Volume(hu, AFFINE), "labels": Volume(labels, AFFINE)}
    return found if lesion is None else found | {"lesion": Volume(lesion, AFFINE)}


def image(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))


def drawn(picture: Picture, colour: tuple[int, int, int]) -> np.ndarray:
    """Where an opaque colour is in a picture's outlines."""
    rgba = np.asarray(image(picture.overlay).convert("RGBA"))
    return (rgba[..., :3] == colour).all(axis=2) & (rgba[..., 3] == 255)


@pytest.mark.parametrize("window", WINDOWS.values())
def test_windows_show_hu_as_they_should(window: tuple[str, float, float]) -> None:
    _, level, width = window
    hu = np.linspace(-1000, 1400, 500)
    shown = window_greys(WINDOWS["soft"]._replace(level=level, width=width))[levels(hu)]
    expected = np.clip((hu - level) / width + 0.5, 0, 1)
    # Half a level: 10 HU in lung, 1.5 in soft tissue, 13 in bone.
    np.testing.assert_allclose(shown, expected, atol=13.5 / width)
    inside = (hu > -200) & (hu < 280)
    np.testing.assert_allclose(shown[inside], expected[inside], atol=1.6 / width)


def test_levels_of_what_is_no_number_are_air_or_metal() -> None:
    assert levels(np.array([np.nan, -np.inf, np.inf])).tolist() == [0, 0, 255]


def test_slices_are_those_where_the_organ_or_its_lesion_is_largest() -> None:
    organ = ScanPictures(**volumes())
    # k, and (in the canonical frame) 49 - j and 59 - i.
    assert organ.best(LIVER)[0] == 9
    assert organ.best(None) == (10, 25, 30)
    assert not organ.has_lesion
    inside = ScanPictures(**volumes(box((6, 10), (6, 9), (12, 14))))
    d, h, w = inside.best(LIVER)
    assert d in (12, 13)
    assert 49 - h in range(6, 9)
    assert 59 - w in range(6, 10)
    elsewhere = ScanPictures(**volumes(box((40, 45), (40, 45), (17, 18))))
    assert elsewhere.best(LIVER) == organ.best(LIVER)
    assert elsewhere.best(None)[0] == 17
    assert elsewhere.best(1) == elsewhere.best(None), "an organ without voxels"


@pytest.mark.parametrize("flips", [(1, 1, 1), (-1, 1, 1), (1, -1, -1)])
def test_outlines_of_organ_and_lesion_lie_on_them(flips: tuple[int, int, int]) -> None:
    lesion = box((6, 16), (6, 16), (6, 14))
    affine = AFFINE @ np.diag([*flips, 1])
    given = {
        name: Volume(volume.voxels[:: flips[0], :: flips[1], :: flips[2]], affine)
        for name, volume in volumes(lesion).items()
    }
    pictures = ScanPictures(**given)
    axial, coronal, sagittal = pictures.planes((12, 40, 50), [Outlined(LIVER, CYAN)])
    # In the picture the patient's right (large i) is at the left, anterior (large j) on top.
    for picture, size in ((axial, (60, 50)), (coronal, (60, 40)), (sagittal, (50, 40))):
        assert (picture.width, picture.height) == size == image(picture.uri).size
        assert picture.width_mm == pytest.approx(size[0])
        assert drawn(picture, CYAN).any()
        assert drawn(picture, LESION_COLOUR).any()
    rows, columns = drawn(axial, CYAN).nonzero()
    assert (59 - columns.max(), 59 - columns.min()) == (5, 19)
    assert (49 - rows.max(), 49 - rows.min()) == (5, 19)
    rows, columns = drawn(coronal, LESION_COLOUR).nonzero()
    assert (rows.min() // 2, rows.max() // 2) == (6, 13), "k 13 to 6, superior on top"
    # The slice itself is that of k = 12.
    assert np.abs(np.asarray(image(axial.uri)).astype(int) - levels(np.array([20.0]))).max() <= 1


def test_cells_are_tinted_where_they_lie() -> None:
    # A grid of 8 x 8 x 8 voxels in the canonical frame that covers the whole scan.
    left, back, up = [0, 0, -7.5, 55.75], [0, -6.25, 0, 46.375], [5, 0, 0, 1.5]
    to_world = np.array([left, back, up, [0, 0, 0, 1]])
    view = View("", np.zeros((8, 8, 8), np.float32), GridTransform((8, 8, 8), to_world))
    inside = np.zeros((4, 4, 4), bool)
    inside[1, 0, 2] = True
    pictures = ScanPictures(volumes()["ct"])
    axial = pictures.picture(0, 7, [Outlined(LIVER, CYAN)], Cells(view, inside))
    tinted = np.asarray(image(axial.overlay).convert("RGBA"))[..., 3] > 0
    rows, columns = tinted.nonzero()
    assert (rows.min(), rows.max() + 1) == pytest.approx((0, 12.5), abs=1)
    assert (columns.min(), columns.max() + 1) == pytest.approx((30, 45), abs=1)
    assert pictures.picture(0, 3, [], Cells(view, inside)).overlay == "", "another layer of cells"


def embedded_scan(html: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """What the page's script takes: its description, and the voxels, taken apart as it does."""
    (found,) = re.findall(r'data-info="(.*?)" data-greys="(.*?)" data-labels="(.*?)"', html)
    info = json.loads(unescape(found[0]))
    D, H, W = info["shape"]
    sheet = np.asarray(image(found[1]))
    columns = math.ceil(math.sqrt(D))
    rows = -(-D // columns)
    high, wide = sheet.shape[0] // rows, sheet.shape[1] // columns
    tiles = sheet.reshape(rows, high, columns, wide).swapaxes(1, 2).reshape(-1, high, wide)
    labels = np.frombuffer(zlib.decompress(base64.b64decode(found[2])), np.uint8)
    return info, tiles[:D, :H, :W], labels.reshape(D, H, W)


@pytest.mark.parametrize("most", [60 * 50 * 20, 9000, 1000])
def test_small_scan_lies_where_the_scan_lies(most: int) -> None:
    lesion = box((40, 48), (40, 48), (14, 18))
    small = small_scan(**volumes(lesion), most_voxels=most)
    assert small.greys.shape == small.labels.shape
    assert small.greys.size <= most
    assert small.reduced is (most < 60000)
    assert (small.labels == LIVER).any()
    place = small.to_mm @ [*np.argwhere(small.labels == LESION).mean(axis=0), 1]
    np.testing.assert_allclose(place[:3], (43.5, 43.5, 31), atol=max(small.spacing_mm) / 2 + 1e-6)
    # HU rise with the height: 10 for each slice of 2 mm.
    found = level_hu()[small.greys[:, 0, 0]]
    heights = np.array([(small.to_mm @ [d, 0, 0, 1])[2] for d in range(len(found))])
    np.testing.assert_allclose(found[1:-1], (heights / 2 * 10 - 100)[1:-1], atol=10)


def test_page_shows_the_scan_with_a_viewer(make_report: MakeReport) -> None:
    report = make_report(**volumes(box((6, 10), (6, 9), (12, 14))), truth="liver")
    html = render(report)
    info, greys, labels = embedded_scan(html)
    assert info["start"][0] in (12, 13)
    assert info["outlined"] == [LIVER, LESION]
    (organ, lesion) = info["organs"]
    assert (organ["name"], lesion["name"]) == ("liver", "true lesion")
    assert tuple(lesion["colour"]) == LESION_COLOUR
    assert labels.shape == tuple(info["shape"]) == (20, 50, 60)
    # k 6 to 13 and so on, in the canonical frame: superior, posterior, left.
    assert (labels[12:14, 41:44, 50:54] == LESION).all()
    assert labels[9, 49 - 25, 59 - 25] == LIVER
    assert np.abs(greys[7].astype(int) - levels(np.array([-30.0]))).max() <= 1
    assert html.count('class="ruler"') == 1 + 3, "one slice for readers without scripts"
    assert ">true lesion</span>" in html
    for name in WINDOWS:
        assert f'<filter id="window-{name}"' in html
    assert ">true lesion</span>" not in render(make_report(**volumes()))
    assert "Pictures show the scan itself" in html
    without = render(replace(report, ct=None))
    assert "The outlines on the CT are the cells" in without
    assert "Pictures show" not in without


def test_only_the_viewers_script_may_run(make_report: MakeReport) -> None:
    evil = "<script>alert(1)</script>"
    report = make_report(**volumes(), question=evil, truth=evil, warnings=(evil,), source=evil)
    html = render(report)
    (run,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert run == script()
    sha256 = base64.b64encode(hashlib.sha256(run.encode()).digest()).decode()
    assert f"content=\"{POLICY}; script-src 'sha256-{sha256}'\"" in html
    assert "<script" not in render(replace(report, ct=None)).lower()
    assert not re.search(r"https?:|fetch|innerHTML|eval\(", run)


def test_page_of_a_large_scan_is_below_3_mb(make_report: MakeReport) -> None:
    rng = np.random.default_rng(0)
    slab = 40 + 30 * rng.standard_normal((512, 512, 4), np.float32)
    # The same memory 75 times: 300 slices.
    tiled = np.broadcast_to(slab[:, :, None, :], (512, 512, 75, 4)).reshape(512, 512, 300)
    labels = np.zeros((512, 512, 300), np.uint8)
    labels[100:300, 100:300, 100:160] = LIVER_ID
    affine = np.diag([0.8, 0.8, 1, 1])
    liver = OrganMention(LIVER, "liver", "liver", (0, 5), "looked_at", (0, 17), 0.5)
    rounds = [Round("liver", (liver,), 1, 1, True, -1.0) for _ in range(4)]
    report = make_report(*rounds, ct=Volume(tiled, affine), labels=Volume(labels, affine))
    html = render(report)
    assert len(html.encode()) < 3_000_000
    info, _, labels = embedded_scan(html)
    assert labels.size > 3_000_000, "of noise; a scan of a patient gets more"
    assert {each["label"] for each in info["organs"]} == {LIVER}


def test_page_holds_no_absolute_path(make_report: MakeReport) -> None:
    html = render(make_report(**volumes(), source="/home/jane.doe/ct.nii.gz"))
    assert "jane.doe" not in html
    assert "ct.nii.gz" in html
