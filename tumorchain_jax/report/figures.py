"""Figures of the page: pictures of one scale side by side."""

from collections.abc import Sequence

from tumorchain_jax.report.pictures import Picture

# Limit on the height of a picture: that of a long scan would fill the screen and more.
TALLEST_REM = 28
RULER_MM = 50


def figure(pictures: Sequence[Picture], caption: str) -> str:
    """Show pictures of one scale side by side.

    Args:
        caption: HTML.
    """
    shown = "\n".join(picture_html(picture) for picture in pictures)
    widths = sum(picture.width for picture in pictures)
    limit = TALLEST_REM * widths / max(picture.height for picture in pictures)
    return f"""<figure>
<div class="planes" style="max-width:{limit:.0f}rem">
{shown}
</div>
<figcaption>{caption}</figcaption>
</figure>
"""


def picture_html(picture: Picture) -> str:
    """Show one picture: its outlines over it, the patient's sides, and a ruler if its size in mm
    is known."""
    places = ("left", "right", "top", "bottom")
    sides = "".join(
        f'<span class="side {place}">{side}</span>'
        for place, side in zip(places, picture.sides, strict=True)
    )
    if picture.width_mm:
        share = 100 * RULER_MM / picture.width_mm
        sides += f'<span class="ruler" style="width:{share:.2f}%">{RULER_MM} mm</span>'
    hu, outlines = "", ""
    if picture.hu:
        hu = ' class="hu"'
    if picture.overlay:
        outlines = f'<img class="outlines" src="{picture.overlay}" alt="outlines">'
    # Equal mm per pixel in all three: their widths share the row by their pixels.
    return (
        f'<div class="plane" style="flex-grow:{picture.width}">'
        f'<div class="slice"><img{hu} src="{picture.uri}" alt="{picture.plane} slice" '
        f'width="{picture.width}" height="{picture.height}">{outlines}{sides}</div>'
        f"<span>{picture.plane}</span></div>"
    )
