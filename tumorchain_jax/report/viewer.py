"""The part of the page that scrolls through the axial slices of the scan."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from tumorchain_jax.report.figures import picture_html
from tumorchain_jax.report.scan_pictures import Outlined, ScanPictures
from tumorchain_jax.report.windows import WINDOWS

# Characters that the slices take at most, and how many slices there are.
MOST_CHARACTERS, MOST_SLICES = 1_400_000, 48


def script() -> str:
    """Return the script of the viewer; it is the same for all reports."""
    return files("tumorchain_jax.report").joinpath("viewer.js").read_text("utf-8")


def viewer(
    pictures: ScanPictures, organs: Sequence[Outlined], start: int, key: str, limit: int
) -> str:
    """Show axial slices, evenly spaced over the scan, with a slider and buttons for the window.

    Without scripts only the slice `start` is seen.

    Args:
        start: axial slice that is shown first, in any case one of those on the page.
        key: HTML that explains the colours.
        limit: characters that are left on the page.
    """
    budget = min(limit, MOST_CHARACTERS)
    first = picture_html(pictures.picture(0, start, organs))
    total = pictures.shape[0]
    count = max(1, min(MOST_SLICES, total, budget // len(first)))
    step = -(-total // count)
    shown: list[str] = []
    used = position = 0
    for index in range(start % step, total, step):
        html = first if index == start else picture_html(pictures.picture(0, index, organs))
        if index != start and used + len(html) > budget:
            continue
        used += len(html)
        hidden = "" if index == start else " hidden"
        shown.append(f'<div data-slice="slice {index + 1} of {total}"{hidden}>{html}</div>')
        if index == start:
            position = len(shown) - 1
    buttons = "".join(
        f'<button type="button" data-window="{name}" aria-pressed="{str(name == "soft").lower()}" '
        f'title="centre {window.level:g} HU, width {window.width:g} HU">{escape(window.title)}'
        "</button>"
        for name, window in WINDOWS.items()
    )
    slices = "\n".join(shown)
    return f"""<section class="viewer">
<h2>The scan</h2>
<div class="tools" hidden>
<div role="group" aria-label="Window of all pictures">{buttons}</div>
<label>Slice <input type="range" min="0" max="{len(shown) - 1}" value="{position}"></label>
<output>slice {start + 1} of {total}</output>
</div>
<div class="stack">
{slices}
</div>
<p class="legend">{key}</p>
</section>
"""
