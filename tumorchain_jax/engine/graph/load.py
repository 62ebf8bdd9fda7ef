"""The triples of the knowledge graph, each with its source, read from TSV files and checked.

Facts are of public sources, the wording is ours; `sources.tsv` lists them with their level (the
paper, 11.2): A guideline or classification, B textbook, C cases annotated by experts. The package
has none of level C.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from tumorchain_jax.core.errors import InputError

Kind = Literal[
    "anatomy", "attribute", "finding", "impression", "histology", "risk", "behaviour", "stage",
    "criterion",
]  # fmt: skip

RELATIONS: dict[str, tuple[tuple[Kind, ...], tuple[Kind, ...]]] = {
    "part_of": (("anatomy",), ("anatomy",)),
    "adjacent_to": (("anatomy",), ("anatomy",)),
    "abuts": (("anatomy",), ("anatomy",)),
    "compresses": (("anatomy",), ("anatomy",)),
    "drains_to": (("anatomy",), ("anatomy",)),
    "has_attribute": (("anatomy",), ("attribute",)),
    "arises_in": (("impression",), ("anatomy",)),
    "suggests": (("finding",), ("impression",)),
    "mimics": (("impression",), ("impression",)),
    "behaves_as": (("impression",), ("behaviour",)),
    "confirmed_by": (("impression",), ("histology",)),
    "precedes": (("histology", "impression"), ("impression",)),
    "risk_for": (("risk",), ("impression",)),
    "spreads_to": (("impression",), ("anatomy",)),
    "invades": (("impression",), ("anatomy",)),
    "staged_as": (("criterion",), ("stage",)),
}
"""Relation -> the kinds that its subject and its object may be of. `abuts` and `compresses`: what
a mass of this part lies against, and what it presses on."""

FILES = ("anatomy", "impressions", "histopathology", "risks", "spread", "staging")
MOST_EDGES = 40
"""The most that a case is shown of the graph."""
_ADD, _LEAVE = "add it to sources.tsv", "leave one of them out"
_FORM = "tab-separated, as the graph in the package"
_COLUMNS = ("subject", "relation", "object", "source")
_SOURCE_COLUMNS = ("key", "level", "title", "edition")
# Of two edges that a case calls for, the one of the earlier relation stays.
_ORDER = (
    "staged_as", "suggests", "part_of", "arises_in", "behaves_as", "mimics", "abuts", "compresses",
    "spreads_to", "has_attribute", "adjacent_to", "drains_to", "invades", "confirmed_by",
    "precedes", "risk_for",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a fact is from.

    Attributes:
        key: how edges name it.
        level: `A` guideline, `B` textbook, `C` annotated case.
        title, edition: of the publication.
    """

    key: str
    level: str
    title: str
    edition: str


@dataclass(frozen=True)
class Edge:
    """A triple.

    Attributes:
        subject, object: entities; of `staged_as` the subject is a criterion (`criteria.py`).
        relation: one of `RELATIONS`.
        source: key of a `Source`.
    """

    subject: str
    relation: str
    object: str
    source: str

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that the triple alone decides, wherever it stands."""
        triple = "\t".join((self.subject, self.relation, self.object))
        return hashlib.sha256(triple.encode()).hexdigest()[:12]


class KnowledgeGraph:
    """Edges by entity and relation.

    Attributes:
        edges: in the order of the files.
        sources: key -> source.
        kinds: entity -> what it is.
        version: hash of all edges and sources; traces of records name it.
    """

    def __init__(self, edges: Iterable[Edge], sources: Iterable[Source]):
        """Check and index the edges.

        Raises:
            InputError: a relation or source is unknown, an edge is there twice, an entity is of two
                kinds, or parts hold each other in a circle.
        """
        self.edges = tuple(edges)
        self.sources = {source.key: source for source in sources}
        self._retrieved: dict[tuple[str, frozenset[str]], tuple[Edge, ...]] = {}
        self._check_edges()
        self.kinds = _kinds(self.edges)
        self._check_parts()
        lines = sorted(map(repr, (*self.edges, *self.sources.values())))
        self.version = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]

    @cached_property
    def _by_entity(self) -> dict[str, list[Edge]]:
        index: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            index[edge.subject].append(edge)
            index[edge.object].append(edge)
        return dict(index)

    @cached_property
    def by_id(self) -> dict[str, Edge]:
        """Id -> edge."""
        return {edge.id: edge for edge in self.edges}

    def touching(self, entity: str) -> tuple[Edge, ...]:
        """Return the edges that an entity is subject or object of."""
        return tuple(self._by_entity.get(entity, ()))

    def objects(self, subject: str, relation: str) -> tuple[str, ...]:
        """Return what a subject is related to."""
        edges = self.touching(subject)
        return tuple(e.object for e in edges if (e.subject, e.relation) == (subject, relation))

    def subjects(self, relation: str, entity: str) -> tuple[str, ...]:
        """Return what is related to an object."""
        edges = self.touching(entity)
        return tuple(e.subject for e in edges if (e.relation, e.object) == (relation, entity))

    def wholes(self, part: str) -> tuple[str, ...]:
        """Return what a part belongs to, from the next larger whole to the organ."""
        whole = self.objects(part, "part_of")
        return (*whole, *self.wholes(whole[0])) if whole else ()

    def for_case(self, organ: str, entities: Iterable[str]) -> tuple[Edge, ...]:
        """Return what a case needs, at most `MOST_EDGES`, in the order of the files.

        That is the organ's staging by guidelines; of the entities that its facts name, what they
        are part of, suggest, look like and touch; the impressions that are suggested, what they
        are mistaken for and how they behave; then the organ's neighbours and nodes, while there
        is room.

        Args:
            organ: as `display_name` writes it.
            entities: parts, findings and impressions; those that the graph lacks are left out.
        """
        asked = organ, frozenset(entities)
        if asked not in self._retrieved:
            self._retrieved[asked] = self._retrieve(*asked)
        return self._retrieved[asked]

    def _retrieve(self, organ: str, entities: frozenset[str]) -> tuple[Edge, ...]:
        arising = set(self.subjects("arises_in", organ))
        named = {entity for entity in entities if entity in self.kinds}
        shown = {i for entity in named for i in self.objects(entity, "suggests")} & arising
        shown |= named & arising
        alike = {i for each in shown for i in self.subjects("mimics", each)}
        alike |= {i for each in shown for i in self.objects(each, "mimics")}
        found = []
        for number, edge in enumerate(self.edges):
            ends = {edge.subject, edge.object}
            if edge.relation == "staged_as":
                wanted = edge.object.rsplit(" ", 1)[0] == organ
            elif edge.relation == "suggests":
                wanted = edge.subject in named and edge.object in shown
            elif edge.relation in ("arises_in", "behaves_as", "mimics"):
                wanted = edge.subject in shown | alike and (
                    edge.relation != "arises_in" or edge.object == organ
                )
            elif edge.relation in ("part_of", "abuts", "compresses"):
                wanted = edge.subject in named
            elif edge.relation in ("confirmed_by", "precedes", "risk_for", "spreads_to", "invades"):
                wanted = bool(ends & shown)
            else:
                wanted = organ in ends
            if wanted:
                found.append((_ORDER.index(edge.relation), number, edge))
        kept = sorted(sorted(found)[:MOST_EDGES], key=lambda each: each[1])
        return tuple(edge for _, _, edge in kept)

    def _check_edges(self) -> None:
        seen = set()
        for edge in self.edges:
            where = f"{edge.subject} {edge.relation} {edge.object}"
            if edge.relation not in RELATIONS:
                raise InputError(
                    where,
                    "relation",
                    edge.relation,
                    f"one of {', '.join(RELATIONS)}",
                    "spell it so",
                )
            if edge.source not in self.sources:
                raise InputError(
                    where, "source", edge.source, f"one of {', '.join(self.sources)}", _ADD
                )
            if edge.id in seen:
                raise InputError(where, "edge", "twice", "once", _LEAVE)
            seen.add(edge.id)

    def _check_parts(self) -> None:
        for part in {edge.subject for edge in self.edges if edge.relation == "part_of"}:
            walked = [part]
            while whole := self.objects(walked[-1], "part_of"):
                if len(whole) > 1:
                    found = " and ".join(whole)
                    raise InputError(
                        walked[-1], "part_of", found, "the next larger whole alone", _LEAVE
                    )
                if whole[0] in walked:
                    found = " in ".join((*walked, whole[0]))
                    raise InputError(part, "part_of", found, "no circle", _LEAVE)
                walked.append(whole[0])


@cache
def shipped_graph() -> KnowledgeGraph:
    """Return the graph in the package."""
    return read_graph(resources.files(__package__))


def read_graph(folder: Traversable) -> KnowledgeGraph:
    """Read a graph from a folder with `sources.tsv` and the files of `FILES`.

    Raises:
        InputError: a file is missing, a line has other columns, or as `KnowledgeGraph`.
    """
    sources = [Source(*row) for row in _rows(folder, "sources", _SOURCE_COLUMNS)]
    for source in sources:
        if source.level not in ("A", "B", "C"):
            raise InputError(
                "sources.tsv",
                f"level of {source.key}",
                source.level,
                "A, B or C",
                "see engine/README.md",
            )
    return KnowledgeGraph(
        (Edge(*row) for name in FILES for row in _rows(folder, name, _COLUMNS)), sources
    )


def _rows(folder: Traversable, name: str, columns: tuple[str, ...]) -> Iterator[list[str]]:
    file = folder.joinpath(f"{name}.tsv")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            str(file), "file", str(error), "a readable file in UTF-8", _FORM
        ) from error
    for number, line in enumerate(lines, 1):
        row = line.split("\t")
        if number == 1:
            if tuple(row) != columns:
                raise InputError(f"{file}:1", "columns", line, " ".join(columns), _FORM)
        elif len(row) != len(columns) or not all(text.strip() == text != "" for text in row):
            raise InputError(
                f"{file}:{number}", "columns", line, f"{len(columns)} filled ones", _FORM
            )
        else:
            yield row


def _kinds(edges: Iterable[Edge]) -> dict[str, Kind]:
    """Find the one kind of each entity that all its relations allow."""
    allowed: dict[str, set[Kind]] = {}
    for edge in edges:
        for entity, kinds in zip(
            (edge.subject, edge.object), RELATIONS[edge.relation], strict=True
        ):
            allowed[entity] = allowed.get(entity, set(kinds)) & set(kinds)
            if not allowed[entity]:
                found = f"of another kind in {edge.relation} than in its other relations"
                raise InputError(
                    entity, "kind", found, "one kind for an entity", "name one of them otherwise"
                )
    # Left open is a subject of `precedes` alone.
    return {
        entity: next(iter(kinds)) if len(kinds) == 1 else "histology"
        for entity, kinds in allowed.items()
    }
