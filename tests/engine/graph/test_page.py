"""The graph's page: everything is on it, it needs nothing else, and names are no markup."""

import re
from pathlib import Path

import pytest

from tumorchain_jax.engine.graph.load import Edge, KnowledgeGraph, Source, shipped_graph
from tumorchain_jax.engine.graph.page import graph_page


@pytest.fixture(scope="module")
def shown() -> str:
    return graph_page(shipped_graph())


def test_every_edge_and_source_is_listed(shown: str) -> None:
    graph = shipped_graph()
    assert all(f"<code>{edge.id}</code>" in shown for edge in graph.edges)
    assert all(source.title.replace("'", "&#x27;") in shown for source in graph.sources.values())
    assert f"{len(graph.edges)} edges" in shown
    assert shown.count('<svg class="graph"') == 5


def test_links_lead_to_a_row(shown: str, tmp_path: Path) -> None:
    links = set(re.findall(r'href="#([^"]+)"', shown))
    ids = re.findall(r'<tr id="([^"]+)"', shown)
    assert len(links) > 100
    assert links <= set(ids)
    assert len(set(ids)) == len(ids)
    (tmp_path / "graph.html").write_text(shown)


def test_it_needs_no_network(shown: str) -> None:
    assert "default-src 'none'" in shown
    assert "<script" not in shown
    assert not re.search(r"(?:src|href)=\"(?!#)", shown)


def test_names_are_escaped() -> None:
    source = Source("s", "A", "<b>title</b>", "1st")
    edge = Edge("<img src=x>", "part_of", "liver", "s")
    shown = graph_page(KnowledgeGraph([edge], [source]))
    assert "<img" not in shown
    assert "<b>" not in shown
