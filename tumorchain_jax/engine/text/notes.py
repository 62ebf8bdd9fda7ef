"""What was read of a report so far, and what the next sentence may lean on."""

import bisect
from dataclasses import dataclass, replace
from functools import cache

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.engine.facts import SourceKind
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.lesions import GENERIC, Lesion, Lesions, are_compatible
from tumorchain_jax.engine.text.places import Place
from tumorchain_jax.engine.text.sections import SectionKind
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.tables import Cell
from tumorchain_jax.engine.text.vocabulary import Term
from tumorchain_jax.engine.text.wording import Wording

OTHERS = frozenset(
    {"calcification", "rim enhancement", "wall thickening", "ductal dilatation", "necrosis"}
)
"""Signs that are an attribute of a lesion where the organ has one."""
FIVE = frozenset(map(display_name, DIGESTIVE))
"""Names of the paper's five organs."""
CARRIERS = ("lesion", "impression", "node", "nodal organ")
"""Kinds of terms that attributes belong to."""
NODES = ("node", "nodal organ")


@dataclass(eq=False)
class Draft:
    """A fact in the making.

    Attributes:
        attribute, value, unit: as in `Fact`.
        start, end: characters of the even text.
        context: what the report says of it.
        place: where it is; None where the lesion or the tumour decides.
        lesion: of which it is told.
        kind: the kind of source.
        about: `sign`, `node` or `stage` where the end of the report decides more; else empty.
    """

    attribute: str
    value: str
    start: int
    end: int
    context: Context
    place: Place | None = None
    lesion: Lesion | None = None
    unit: str = ""
    kind: SourceKind = "radiology"
    about: str = ""


@dataclass
class Mention:
    """A lesion, impression or node that a sentence names.

    Attributes:
        term: how it is named.
        context: what the sentence says of it.
        lesions: which lesions it speaks of; none where nothing is there, or of nodes.
    """

    term: Term
    context: Context
    lesions: list[Lesion]


class Notes:
    """What was read so far.

    Attributes:
        wording: of the report.
        text: its even text with blanks for what addresses a program.
        terms: of the sentences so far.
        kind: of the document.
        lesions, drafts: as read.
        slips: reason and characters of the report that were left out.
        heading: places of the heading that the sentence stands under.
        heading_holds: the heading stands alone on its line and holds until the next one.
        heading_passes: the heading holds for its sentence alone.
        stray_key: the sentence follows a key that names no place: it is not where the last one is.
        near: places of the sentence before.
        columns, cells: of the table that the sentence is a row of.
        pending: a place of which only a key told, and where; what follows is about a lesion there.
        unseen: places that the report calls not assessable.
        group: lesions of the last sentence that named any.
        denying: how the last sentence ended within a list of what is not there (`opens_list`).
    """

    def __init__(self, wording: Wording, text: str, kind: SourceKind):
        self.wording, self.text, self.kind = wording, text, kind
        self.terms: list[Term] = []
        self.lesions = Lesions()
        self.drafts: list[Draft] = []
        self.slips: list[tuple[str, int, int]] = []
        self.group: list[Lesion] = []
        self.unseen: list[Place] = []
        self.begin_section()

    def begin_section(self) -> None:
        """Forget what headings, keys and tables of the section before said."""
        self.heading: tuple[Place, ...] = ()
        self.heading_holds = False
        self.heading_passes = False
        self.stray_key = False
        self.near: tuple[Place, ...] = ()
        self.columns: tuple[str, ...] = ()
        self.cells: list[Cell] = []
        self.pending: tuple[Place, Setting, int, int] | None = None
        self.denying = ""

    def is_unseen(self, place: Place) -> bool:
        """Whether a place is, or holds, one that the report calls not assessable."""
        return any(
            place.organ == other.organ and are_compatible(place.part, other.part)
            for other in self.unseen
        )

    def source(self, section: SectionKind) -> SourceKind:
        """Return the kind of source of what a section says."""
        return "pathology" if section == "pathology" else self.kind

    def draft(
        self,
        setting: Setting,
        attribute: str,
        value: str,
        start: int,
        end: int,
        context: Context,
        place: Place | None,
        lesion: Lesion | None = None,
        unit: str = "",
        about: str = "",
    ) -> None:
        """Keep what the characters `start` to `end` say; see `Draft`."""
        kind = self.source(setting.section)
        if setting.section in ("comparison", "previous"):
            context = replace(context, time="prior")
        self.drafts.append(
            Draft(attribute, value, start, end, context, place, lesion, unit, kind, about)
        )

    def told_last(self) -> Lesion | None:
        """Return the last lesion; one of which only the place was told so far becomes a lesion."""
        if self.pending:
            place, setting, start, end = self.pending
            self.pending = None
            lesion = self.lesions.add(Lesion(place, ""))
            self.draft(setting, "finding", "mass", start, end, Context(), place, lesion)
        return self.lesions.last

    def between(self, start: int, end: int) -> list[Term]:
        """Return the terms within the characters `start` to `end`."""
        first = bisect.bisect_left(self.terms, start, key=lambda term: term.start)
        last = bisect.bisect_left(self.terms, end, key=lambda term: term.start)
        return [term for term in self.terms[first:last] if term.end <= end]


@cache
def tumours() -> frozenset[str]:
    """Return the impressions of the graph that are tumours, benign ones left out."""
    graph = shipped_graph()
    return frozenset(
        impression
        for behaviour in ("malignant", "of uncertain behaviour")
        for impression in graph.subjects("behaves_as", behaviour)
    )


def is_tumour(lesion: Lesion) -> bool:
    """Whether a lesion is a tumour or may be one."""
    return lesion.value in GENERIC or lesion.value in tumours()
