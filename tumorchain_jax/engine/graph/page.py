"""The knowledge graph as one offline page: drawn around each organ, and listed edge by edge."""

import math
from collections import Counter, defaultdict
from html import escape

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.engine.graph.load import RELATIONS, Edge, Kind, KnowledgeGraph
from tumorchain_jax.report.page import page

_COLOURS: dict[Kind, str] = {
    "anatomy": "#2563eb",
    "attribute": "#64748b",
    "finding": "#0d9488",
    "impression": "#b45309",
    "histology": "#9333ea",
    "risk": "#dc2626",
    "behaviour": "#475569",
    "stage": "#15803d",
    "criterion": "#4d7c0f",
}
# What is drawn around an organ, ring by ring from within (the paper's Fig. 3 has three rings).
_RINGS = (
    ("parts", ("part_of",)),
    ("impressions", ("arises_in",)),
    ("findings", ("suggests",)),
)
_RADII = (120, 235, 400)
_SIZE = 1000
_STYLE = """<style>
.graph { width: 100%; height: auto; }
.graph text { font: 11px system-ui, sans-serif; fill: currentColor; }
.graph .organ-name { font-weight: 700; font-size: 15px; }
.graph line { stroke: currentColor; stroke-opacity: .22; }
.graph a:hover text { text-decoration: underline; }
.key span { white-space: nowrap; margin-right: 1em; }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; }
.edges td, .edges th { text-align: left; vertical-align: top; padding: .1em .6em .1em 0; }
.edges code { font-size: .85em; }
</style>"""


def graph_page(graph: KnowledgeGraph) -> str:
    """Draw a graph.

    Returns:
        A page of HTML that needs nothing but itself: counts, sources, a drawing for each of the
        five organs, and all edges by relation, each with its id, level and source.
    """
    organs = [name for name in map(display_name, DIGESTIVE) if name in graph.kinds]
    drawings = "".join(
        f"<h2>{escape(organ)}</h2>{_drawing(graph, organ)}{_staging(graph, organ)}"
        for organ in organs
    )
    content = f"""{_STYLE}
<header><p class="source">version {escape(graph.version)}</p>
<h1>Knowledge graph of the five organs</h1></header>
{_numbers(graph)}
{_sources(graph)}
<p class="legend key">{_key()}</p>
<p class="legend">Around an organ: its parts, the impressions that arise in it, and the findings
that suggest them. A name leads to its edges below.</p>
{drawings}
<h2>All edges</h2>
{"".join(_relation(graph, relation) for relation in RELATIONS)}"""
    return page("Knowledge graph", content)


def _numbers(graph: KnowledgeGraph) -> str:
    levels = Counter(graph.sources[edge.source].level for edge in graph.edges)
    kinds = Counter(graph.kinds.values())
    said = ", ".join(f"{count} of level {level}" for level, count in sorted(levels.items()))
    of_kinds = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return (
        f"<p>{len(graph.edges)} edges ({said}; A: guideline or classification, B: textbook, "
        f"C: annotated case) between {len(graph.kinds)} entities ({of_kinds}).</p>"
    )


def _sources(graph: KnowledgeGraph) -> str:
    counts = Counter(edge.source for edge in graph.edges)
    rows = "".join(
        f"<tr><td><code>{escape(s.key)}</code></td><td>{escape(s.level)}</td>"
        f"<td>{escape(s.title)}, {escape(s.edition)}</td><td>{counts[s.key]}</td></tr>"
        for s in graph.sources.values()
    )
    head = "<tr><th>key</th><th>level</th><th>source</th><th>edges</th></tr>"
    return f'<h2>Sources</h2><table class="edges">{head}{rows}</table>'


def _key() -> str:
    return "".join(
        f'<span><i style="background:{colour}"></i> {kind}</span>'
        for kind, colour in _COLOURS.items()
    )


def _drawing(graph: KnowledgeGraph, organ: str) -> str:
    """Draw rings: a node stands near the middle of what it is joined to in the ring within."""
    rings = _nodes(graph, organ)
    places: dict[str, tuple[float, float, float]] = {organ: (_SIZE / 2, _SIZE / 2, 0.0)}
    for ring, radius in zip(rings, _RADII, strict=True):
        for number, node in enumerate(ring):
            angle = 2 * math.pi * (number + 0.5) / len(ring)
            x, y = _SIZE / 2 + radius * math.cos(angle), _SIZE / 2 + radius * math.sin(angle)
            places.setdefault(node, (x, y, angle))
    lines = "".join(
        _line(places[edge.subject], places[edge.object], edge)
        for edge in graph.edges
        if edge.subject in places and edge.object in places and edge.subject != edge.object
        and edge.relation in ("part_of", "arises_in", "suggests", "mimics")
    )  # fmt: skip
    nodes = "".join(_node(graph, name, place, name == organ) for name, place in places.items())
    title = f"<title>{escape(organ)}: parts, impressions, findings</title>"
    return (
        f'<svg class="graph" viewBox="-120 -120 {_SIZE + 240} {_SIZE + 240}" role="img">'
        f"{title}{lines}{nodes}</svg>"
    )


def _nodes(graph: KnowledgeGraph, organ: str) -> list[list[str]]:
    parts = [name for name in graph.kinds if organ in graph.wholes(name)]
    impressions = list(graph.subjects("arises_in", organ))
    order = {name: rank for rank, name in enumerate(impressions)}
    suggested: dict[str, list[int]] = defaultdict(list)
    for edge in graph.edges:
        if edge.relation == "suggests" and edge.object in order:
            suggested[edge.subject].append(order[edge.object])
    findings = sorted(suggested, key=lambda name: sum(suggested[name]) / len(suggested[name]))
    return [parts, impressions, findings]


def _line(start: tuple[float, float, float], end: tuple[float, float, float], edge: Edge) -> str:
    dash = ' stroke-dasharray="4 4"' if edge.relation == "mimics" else ""
    said = escape(f"{edge.subject} {edge.relation} {edge.object}")
    return (
        f'<line x1="{start[0]:.0f}" y1="{start[1]:.0f}" x2="{end[0]:.0f}" y2="{end[1]:.0f}"{dash}>'
        f"<title>{said}</title></line>"
    )


def _node(graph: KnowledgeGraph, name: str, place: tuple[float, float, float], middle: bool) -> str:
    x, y, angle = place
    colour = _COLOURS[graph.kinds[name]]
    if middle:
        return (
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="9" fill="{colour}"/>'
            f'<text class="organ-name" x="{x + 14:.0f}" y="{y + 5:.0f}">{escape(name)}</text>'
        )
    left = math.cos(angle) < 0
    turn = math.degrees(angle) + (180 if left else 0)
    anchor, gap = ("end", -8) if left else ("start", 8)
    return (
        f'<a href="#{_anchor(name)}"><g transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})">'
        f'<circle r="4" fill="{colour}"/>'
        f'<text x="{gap}" y="4" text-anchor="{anchor}">{escape(name)}</text></g></a>'
    )


def _anchor(name: str) -> str:
    return "e-" + "".join(c if c.isalnum() else "-" for c in name.casefold())


def _staging(graph: KnowledgeGraph, organ: str) -> str:
    rows = "".join(
        f"<tr><td>{escape(edge.object.removeprefix(f'{organ} '))}</td>"
        f"<td>{escape(edge.subject)}</td></tr>"
        for edge in graph.edges
        if edge.relation == "staged_as" and edge.object.rsplit(" ", 1)[0] == organ
    )
    head = "<tr><th>category</th><th>if all of these hold</th></tr>"
    return f'<details><summary>T, N, M</summary><table class="edges">{head}{rows}</table></details>'


def _relation(graph: KnowledgeGraph, relation: str) -> str:
    edges = [edge for edge in graph.edges if edge.relation == relation]
    seen: set[str] = set()
    rows = "".join(_row(graph, edge, seen) for edge in edges)
    head = "<tr><th>subject</th><th>object</th><th>level</th><th>source</th><th>id</th></tr>"
    return f'<h3>{escape(relation)} ({len(edges)})</h3><table class="edges">{head}{rows}</table>'


def _row(graph: KnowledgeGraph, edge: Edge, seen: set[str]) -> str:
    source = graph.sources[edge.source]
    # The first row of an entity is where its name in a drawing leads: its own relation's.
    names = [edge.subject] if _home(graph, edge) else []
    marks = "".join(f' id="{_anchor(name)}"' for name in names if name not in seen)
    seen.update(names)
    cells = (edge.subject, edge.object, source.level, source.key)
    columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{marks}>{columns}<td><code>{edge.id}</code></td></tr>"


def _home(graph: KnowledgeGraph, edge: Edge) -> bool:
    homes = {"anatomy": "part_of", "impression": "arises_in", "finding": "suggests"}
    return homes.get(graph.kinds[edge.subject]) == edge.relation
