"""The part of the page that scrolls through the scan: three planes of a small copy of it."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from tumorchain_jax.report.figures import picture_html
from tumorchain_jax.report.pictures import Colour
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.report.scan_pictures import LESION_COLOUR, Outlined, ScanPictures
from tumorchain_jax.report.small_scan import LESION, SmallScan, embedded, small_scan

# Characters that the copy takes at most, and voxels that it has.
MOST_CHARACTERS, MOST_VOXELS = 1_500_000, 12_000_000


def script() -> str:
    """Return the script of the viewer; it is the same for all reports."""
    return "".join(_file(name) for name in ("viewer.js", "report.js"))


def style() -> str:
    """Return the viewer's CSS."""
    return _file("viewer.css")


def viewer(
    report: ReportRecord,
    pictures: ScanPictures,
    organs: Sequence[Outlined],
    start: int,
    key: str,
    limit: int,
) -> str:
    """Show the scan in three planes; without scripts, and until they run, one axial slice.

    Args:
        organs: are outlined at first.
        start: axial slice that is shown first.
        key: HTML that explains the colours.
        limit: characters that are left on the page.
    """
    still = picture_html(pictures.picture(0, start, organs))
    colours = {each.label: each.colour for each in organs}
    small, greys, labels = _fitting(report, min(limit, MOST_CHARACTERS) - len(still))
    info = json.dumps(_info(report, small, colours, start / pictures.shape[0], pictures.has_lesion))
    return f"""<section class="viewer">
<h2>The scan</h2>
<div class="still stack">{still}</div>
<div class="live" hidden>
<div class="bar"></div>
<div class="pictures"></div>
<p class="legend">Wheel, sliders or arrow keys scroll; Ctrl and the wheel, or + and -, zoom; Shift
and a drag move a zoomed plane; M measures. A click moves the other planes there: <output
class="told-hu"></output>. The small copy of the scan is good for looking, not for measuring HU.</p>
<details><summary>Organs in the scan</summary><div class="viewer-organs"></div></details>
</div>
<p class="legend">{key}</p>
<div id="small-scan" hidden data-info="{escape(info)}" data-greys="{greys}" data-labels="{labels}">
</div>
</section>
"""


def _fitting(report: ReportRecord, limit: int) -> tuple[SmallScan, str, str]:
    """The finest copy that takes at most `limit` characters, with its data."""
    voxels = MOST_VOXELS
    assert report.ct is not None
    while True:
        small = small_scan(report.ct, report.labels, report.lesion, voxels)
        greys, labels = embedded(small)
        taken = len(greys) + len(labels)
        if taken <= limit or voxels < 1000:
            return small, greys, labels
        voxels = int(min(voxels, small.greys.size) * 0.9 * limit / taken)


def _info(
    report: ReportRecord,
    small: SmallScan,
    colours: Mapping[int, Colour],
    start: float,
    lesion: bool,
) -> dict[str, object]:
    """What the script reads beside the voxels.

    Args:
        start: where the first slice is, from 0 to 1 from inferior to superior.
    """
    volumes = {name: each.volume_ml for name, each in report.organs.items()}
    info = small.info({**colours, LESION: LESION_COLOUR}, volumes)
    there = {each["label"]: each["at"] for each in info["organs"]}
    outlined = [label for label in (*colours, LESION) if label in there]
    # The middle of what is outlined last: the lesion, or the organ that was looked at last.
    _, h, w = there[outlined[-1]] if outlined else (size // 2 for size in small.greys.shape)
    first = [min(small.greys.shape[0] - 1, int(start * small.greys.shape[0])), h, w]
    return {**info, "outlined": outlined, "start": first}


def _file(name: str) -> str:
    return files("tumorchain_jax.report").joinpath(name).read_text("utf-8")
