"""Tables in a report: columns parted by `|` or tabs, named by a first row."""

import re
from dataclasses import dataclass

from tumorchain_jax.engine.text.counts import Counted
from tumorchain_jax.engine.text.measures import count_of

_HEADERS = re.compile(
    r"\b(?:organ|location|site|segment|part|region|size|diameter|dimensions?|density|attenuation|"
    r"shape|form|margins?|borders?|boundary|finding|findings|lesions?|count|number|depth|others?|"
    r"lokalisation|größe|dichte|rand|begrenzung|parameter|feature|attribute|value|result)\b"
)
_SIZE = re.compile(r"\b(?:size|diameter|dimensions?|größe|max|mm|cm|length)\b")
_COUNT = re.compile(r"\b(?:count|number|anzahl)\b")
_PRIOR = re.compile(
    r"\b(?:baseline|previous|prior|old|earlier|last|former|nadir|initial|before|vor\w*|alt|ausgangs\w*)\b"
)
_NOW = re.compile(r"\b(?:current|now|today|present|new|follow[- ]?up|aktuell|jetzt)\b")
_UNIT = re.compile(r"\b(mm|cm)\b")


@dataclass(frozen=True)
class Cell:
    """A cell of a row.

    Attributes:
        header: the name of its column, in small letters.
        start, end: its characters.
    """

    header: str
    start: int
    end: int

    @property
    def unit(self) -> str:
        """The unit that the column's name gives, or an empty text."""
        match = _UNIT.search(self.header)
        return match[1] if match else ""

    @property
    def is_prior(self) -> bool:
        """Whether the column holds what was measured at an earlier time."""
        return bool(_PRIOR.search(self.header)) and not _NOW.search(self.header)

    @property
    def is_size(self) -> bool:
        """Whether the column holds sizes."""
        return bool(_SIZE.search(self.header))


def read_header(row: str) -> tuple[str, ...]:
    """Return the names of the columns if a row in small letters is the head of a table."""
    cells = _cells(row)
    named = [cell for cell in cells if _HEADERS.search(cell)]
    if len(cells) < 3 or len(named) < 2 or re.search(r"\d", re.sub(r"\([^)]*\)", "", row)):
        return ()
    return tuple(cells)


def read_row(text: str, start: int, end: int, columns: tuple[str, ...]) -> list[Cell]:
    """Return the cells of a row with their columns' names."""
    cells = []
    position = start
    for k, piece in enumerate(_cells(text[start:end])):
        at = text.find(piece, position, end) if piece else position
        header = columns[k] if k < len(columns) else ""
        cells.append(Cell(header, at, at + len(piece)))
        position = text.find("|", at + len(piece), end) + 1 or end
    return cells


def count_in(text: str, cells: list[Cell]) -> Counted | None:
    """Return the number in the column of counts, with its characters."""
    for cell in cells:
        if _COUNT.search(cell.header):
            count = count_of(text[cell.start : cell.end])
            if count is not None:
                return Counted(count, cell.start, cell.end)
    return None


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]
