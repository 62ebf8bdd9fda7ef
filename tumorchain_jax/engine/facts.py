"""Facts: what a report or a measurement says, with the characters that say it.

Everything that a record claims rests on facts and on edges of the knowledge graph; `Fact.id` is how
traces name them.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

SourceKind = Literal["radiology", "pathology", "mask"]
Polarity = Literal["present", "absent"]
Certainty = Literal["definite", "probable", "possible"]
Time = Literal["current", "prior", "hypothetical"]

ATTRIBUTES = (
    "finding", "shape", "boundary", "density", "count", "size", "depth", "others", "nodes",
    "impression", "histology", "T", "N", "M", "age", "sex", "history", "volume", "mean", "box",
    "third",
)  # fmt: skip
"""What a fact may be about; the values of each: `engine/README.md`."""


@dataclass(frozen=True)
class Source:
    """Where a fact stands.

    Attributes:
        kind: a radiology report, a pathology report, or a measurement on masks.
        document: sha256 of the text (or of the label map) as read, before any change.
        start, end: characters of the text; 0 and 0 for a measurement.
        quote: these characters; for a measurement what was measured, such as `volume_ml`.
    """

    kind: SourceKind
    document: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True)
class Fact:
    """One thing that a source says.

    Attributes:
        case: id of the case.
        organ: display name of a merged label (Table 10), empty where none is named.
        part: substructure of the organ, a `part_of` entity of the graph, else empty.
        lesion: number of the lesion within case and organ, from 1; 0 for the organ as a whole.
        attribute: one of `ATTRIBUTES`.
        value: canonical word or number.
        unit: `mm`, `ml`, `HU`, `years`, `grid` (fractions of the scan), or empty.
        polarity, certainty, time: what `Context` in `engine/text/context.py` says of them.
        source: where it stands.
    """

    case: str
    organ: str
    part: str
    lesion: int
    attribute: str
    value: str
    unit: str
    polarity: Polarity
    certainty: Certainty
    time: Time
    source: Source

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits that the fact alone decides."""
        return hashlib.sha256(self.to_json().encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def to_json(self) -> str:
        """One line of JSON, keys in a fixed order, without the id."""
        values = {**vars(self), "source": vars(self.source)}
        values.pop("id", None)  # the cached one
        return json.dumps(values, ensure_ascii=False, sort_keys=True)

    @property
    def is_current(self) -> bool:
        """Whether it says that something is there now."""
        return self.polarity == "present" and self.time == "current"
