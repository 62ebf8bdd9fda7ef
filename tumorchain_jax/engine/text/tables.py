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
_DATE = re.compile(r"\d{1,4}(?:[./-]\d{1,4}){1,2}|(?:19|20)\d\d")
_UNIT = re.compile(r"\b(mm|cm)\b")


@dataclass(frozen=True)
class Cell:
    """A cell of a row.

    Attributes:
        header: the name of its column, in small letters.
        start, end: its characters.
        old: the column is of a date before another column's.
    """

    header: str
    start: int
    end: int
    old: bool = False

    @property
    def unit(self) -> str:
        """The unit that the column's name gives, or an empty text."""
        match = _UNIT.search(self.header)
        return match[1] if match else ""

    @property
    def is_prior(self) -> bool:
        """Whether the column holds what was measured at an earlier time."""
        return self.old or (bool(_PRIOR.search(self.header)) and not _NOW.search(self.header))

    @property
    def is_size(self) -> bool:
        """Whether the column holds sizes."""
        return bool(_SIZE.search(self.header) or _DATE.fullmatch(self.header))


def read_header(row: str) -> tuple[str, ...]:
    """Return the names of the columns if a row in small letters is the head of a table."""
    cells = _cells(row)
    named = [cell for cell in cells if _HEADERS.search(cell)]
    dated = [cell for cell in cells if _DATE.fullmatch(cell)]
    plain = re.sub(r"\([^)]*\)", "", "|".join(cell for cell in cells if cell not in dated))
    if len(cells) < 3 or len(named) + len(dated) < 2 or not named or re.search(r"\d", plain):
        return ()
    return tuple(cells)


def read_row(text: str, start: int, end: int, columns: tuple[str, ...]) -> list[Cell]:
    """Return the cells of a row with their columns' names."""
    cells = []
    dates = {column: _day(column) for column in columns if _DATE.fullmatch(column)}
    last = max(dates.values(), default=())
    position = start
    for k, piece in enumerate(_cells(text[start:end])):
        at = text.find(piece, position, end) if piece else position
        header = columns[k] if k < len(columns) else ""
        cells.append(Cell(header, at, at + len(piece), header in dates and dates[header] < last))
        position = text.find("|", at + len(piece), end) + 1 or end
    return cells


def _day(date: str) -> tuple[int, ...]:
    """Return year, month and day of a date, as far as it names them; `/` puts the month first."""
    numbers = [int(number) for number in re.findall(r"\d+", date)]
    if numbers[0] > 31:  # 2024-03-12
        return tuple(numbers)
    if len(numbers) == 3 and "/" in date:
        return numbers[2], numbers[0], numbers[1]
    return tuple(numbers[::-1])


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
