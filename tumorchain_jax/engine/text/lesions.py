"""The lesions of a report: which of its sentences speak of the same one."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.text.places import Place

GENERIC = frozenset({"mass", "tumour", ""})
"""Words that may stand for a lesion that is named more exactly elsewhere."""


_NO_MASS = frozenset({"diverticulum", "gallstone", "kidney stone", "infarct", "accessory spleen"})
"""Findings that nobody calls a mass."""


@dataclass(eq=False)
class Lesion:
    """A lesion as the report tells of it.

    Attributes:
        place: where it is; an empty organ where that is not said yet.
        value: what it is called first: `mass`, `cyst`, ...
        several: it is spoken of in the plural.
        sizes: in mm, of the sentence that names it.
        concluded: it was first named in the impression.
        suspected: the report is not sure that it is there.
        listed: it is one of several that were told of first as a number.
    """

    place: Place
    value: str
    several: bool = False
    sizes: list[float] = field(default_factory=list)
    concluded: bool = False
    suspected: bool = False
    listed: bool = False


class Lesions:
    """Lesions in the order of the report."""

    def __init__(self) -> None:
        self.all: list[Lesion] = []
        self.last: Lesion | None = None

    def __iter__(self) -> Iterator[Lesion]:
        return iter(self.all)

    def add(self, lesion: Lesion) -> Lesion:
        """Add a lesion, which is the last one spoken of from now on."""
        self.all.append(lesion)
        self.last = lesion
        return lesion

    def numbers(self) -> dict[int, int]:
        """Return the number of every lesion by its identity."""
        counts: dict[str, int] = {}
        numbers = {}
        for lesion in self.all:
            counts[lesion.place.organ] = counts.get(lesion.place.organ, 0) + 1
            numbers[id(lesion)] = counts[lesion.place.organ]
        return numbers

    def main_organ(self) -> str:
        """Return the organ of the tumour; where none is called so, of the first mass."""
        placed = [lesion for lesion in self.all if lesion.place.organ and not lesion.suspected]
        tumours = [x for x in placed if x.value == "tumour" or x.value in _malignant()]
        tumours += [x for x in placed if x.value in GENERIC and not x.concluded]
        tumours += [x for x in placed if x.value in GENERIC]
        return tumours[0].place.organ if tumours else ""

    def only_named(self, place: Place, value: str) -> Lesion | None:
        """Return the lesion of an organ of which nothing but its name is known, if any.

        "Known carcinoma of the colon. There is a 3 cm mass in the cecum." speaks of one.
        """
        for lesion in self.all:
            same = lesion.place in (Place(place.organ), place)
            is_bare = same and place.organ and not lesion.sizes and lesion.value != "mass"
            if is_bare and (lesion.value in GENERIC or lesion.value in _malignant()):
                return lesion if value in GENERIC and not lesion.several else None
        return None

    def claim(self, place: Place, value: str) -> Lesion | None:
        """Return the lesion that stands for several of an organ, of which one is told of now.

        "There are two masses in the liver. A 3 cm mass in segment VI ..."
        """
        for lesion in self.all:
            bare = lesion.several and not lesion.sizes and not lesion.place.part
            if bare and lesion.place.organ == place.organ and _may_be(lesion.value, value):
                lesion.several, lesion.listed = False, True
                return lesion
        return None

    def concluded(self, place: Place, value: str, sizes: list[float]) -> Lesion | None:
        """Return the lesion that a conclusion before the findings told of, if it is this one."""
        for lesion in self.all:
            same = lesion.place.organ == place.organ and _may_be(lesion.value, value)
            near = not sizes or not lesion.sizes or any(
                abs(a - b) <= 2 for a in sizes for b in lesion.sizes
            )  # fmt: skip
            if lesion.concluded and same and near and are_compatible(lesion.place.part, place.part):
                return lesion
        return None

    def alike(self, organ: str, value: str) -> list[Lesion]:
        """Return the single lesions of an organ that a name may mean."""
        return [
            x for x in self.all
            if x.place.organ == organ and _may_be(x.value, value) and not x.several
        ]  # fmt: skip

    def match(self, place: Place, value: str, sizes: list[float], later: bool) -> Lesion | None:
        """Return the lesion that a later mention of this place and name means, if any.

        Args:
            place, value, sizes: of the mention.
            later: it stands in a conclusion. There a part that differs is allowed where the organ
                holds one such lesion alone: the report then contradicts itself, which is for
                `conflicts` to say.
        """
        alike = [x for x in self.all if x.place.organ == place.organ and _may_be(x.value, value)]
        if not alike:
            return None
        fitting = [x for x in alike if are_compatible(x.place.part, place.part)]
        if sizes and len(fitting) > 1:
            fitting = [x for x in fitting if set(x.sizes) & set(sizes)] or fitting
        same = [x for x in fitting if x.value == value]
        if fitting:
            return (same or fitting)[0]
        return alike[0] if later and len(alike) == 1 else None


def are_compatible(part: str, other: str) -> bool:
    """Whether two parts may be the same place: one is empty, or they are one within the other."""
    if not part or not other or part == other:
        return True
    graph = shipped_graph()
    return part in graph.wholes(other) or other in graph.wholes(part)


def _may_be(value: str, other: str) -> bool:
    if {value, other} & _NO_MASS:
        return value == other
    return value == other or value in GENERIC or other in GENERIC


def _malignant() -> tuple[str, ...]:
    return shipped_graph().subjects("behaves_as", "malignant")
