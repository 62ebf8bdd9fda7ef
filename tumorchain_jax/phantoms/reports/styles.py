"""The styles: each a writer with its own phrase book, layout, units and habits."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["organs", "flow", "lines"]
"""A line for each organ; one paragraph; a line for each entry."""
Slips = Literal["", "typos", "capitals"]


@dataclass(frozen=True)
class Style:
    """How a writer writes.

    Attributes:
        name: also of its phrase book, `styles/NAME.txt`.
        layout: of the findings.
        negations: odds that a normal organ is described by what it does not show.
        length: how many things a list of negations names at most.
        priors: odds that an earlier finding that has gone is mentioned.
        hedges: odds that a benign finding is called probable or possible.
        certain: odds of a definite, a probable and a possible impression.
        units: how lengths are written: `mm`, `cm`, or `mixed` within one report.
        language: code of its words.
        pathology: phrase book of the pathology reports.
        british: British spelling.
        slips: what happens to the text at the end.
        held_out: reported on, but used in no choice.
    """

    name: str
    layout: Layout = "flow"
    negations: float = 0.3
    length: int = 2
    priors: float = 0.0
    hedges: float = 0.0
    certain: tuple[int, int, int] = (5, 4, 1)
    units: str = "mixed"
    language: str = "en"
    pathology: str = "pathology"
    british: bool = False
    slips: Slips = ""
    held_out: bool = False


STYLES: dict[str, Style] = {
    style.name: style
    for style in (
        Style("structured", "organs", units="cm"),
        Style("telegraphic", "organs", pathology="synoptic"),
        Style("dictated"),
        Style("priors", priors=0.8, units="mm"),
        Style("hedged", hedges=0.7, certain=(2, 4, 4)),
        Style("negations", negations=0.85, length=5),
        Style("typos", slips="typos"),
        Style("german", "organs", language="de", pathology="pathologie"),
        Style("template", "lines", units="mm", pathology="synoptic", held_out=True),
        Style("capitals", slips="capitals", held_out=True),
        Style("letter", british=True, held_out=True),
    )
}
"""Name -> style."""
OPEN_STYLES = tuple(name for name, style in STYLES.items() if not style.held_out)
HELD_OUT = tuple(name for name, style in STYLES.items() if style.held_out)
