"""The knowledge graph: its size and sources, the real label map, the staging rules, bad files."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest
from scipy import ndimage

import tumorchain_jax.engine.graph
from tumorchain_jax.anatomy.organs import (
    COLORECTUM,
    DIGESTIVE,
    ESOPHAGUS,
    LIVER,
    MERGE,
    ORGANS,
    STOMACH,
    SUB_ORGANS,
    display_name,
)
from tumorchain_jax.anatomy.staging import Extent, stage
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.graph.criteria import categories, holds
from tumorchain_jax.engine.graph.load import MOST_EDGES, read_graph, shipped_graph

GRAPH = shipped_graph()


def test_size_and_sources() -> None:
    assert len(GRAPH.edges) >= 250
    assert len(GRAPH.by_id) == len(GRAPH.edges)
    assert {edge.source for edge in GRAPH.edges} == set(GRAPH.sources)
    assert all(source.title and source.edition for source in GRAPH.sources.values())


@pytest.mark.parametrize("organ", DIGESTIVE)
def test_every_part_belongs_to_its_organ(organ: int) -> None:
    for part in SUB_ORGANS[organ]:
        assert GRAPH.wholes(part)[-1] == display_name(organ), part


@pytest.mark.parametrize("organ", DIGESTIVE)
def test_every_impression_has_signs_behaviour_and_for_tumours_histology(organ: int) -> None:
    impressions = GRAPH.subjects("arises_in", display_name(organ))
    assert len(impressions) >= 4
    for impression in impressions:
        assert GRAPH.subjects("suggests", impression), impression
        (behaviour,) = GRAPH.objects(impression, "behaves_as")
        assert behaviour != "malignant" or GRAPH.objects(impression, "confirmed_by"), impression


def extents(organ: int) -> Iterator[Extent]:
    """Every combination of what decides a stage, at and around all limits."""
    sizes = [(float(mm),) for mm in (1, 5, 6, 9.5, 10, 20, 21, 40, 41, 50, 51, 90)]
    sizes += [(float(a), float(b)) for a in (10, 50, 51) for b in (4, 20, 60)]
    hollow = organ in (STOMACH, ESOPHAGUS, COLORECTUM)
    depths = (
        ("inner wall", "wall", "fat", "surface", "neighbour") if hollow else ("wall", "neighbour")
    )
    yes_no = (False, True)
    vessels = [(False, False)] if hollow else list(itertools.product(yes_no, yes_no))
    for mm, depth, (small, large) in itertools.product(sizes, depths, vessels):
        yield Extent(organ, mm, depth, small, large)
    for nodes in range(20):
        yield Extent(organ, (30.0,), nodes=nodes)
    for sites, peritoneum in itertools.product(((), (10,), (1, 10)), yes_no):
        yield Extent(organ, (30.0,), metastases=frozenset(sites), peritoneum=peritoneum)


@pytest.mark.parametrize("organ", DIGESTIVE)
def test_criteria_give_the_stage_of_the_rules(organ: int) -> None:
    for extent in extents(organ):
        assert categories(GRAPH, extent) == stage(extent), extent


@pytest.mark.parametrize("criterion", ["size = 3", "largest_mm > 5", "", "nodes <= 5 mm"])
def test_unreadable_criteria_are_refused(criterion: str) -> None:
    with pytest.raises(InputError, match="criterion"):
        holds(criterion, Extent(LIVER, (10.0,)))


def test_a_case_gets_what_its_findings_call_for() -> None:
    edges = GRAPH.for_case("pancreas", ["hypodense mass", "ill-defined margin"])
    entities = {end for edge in edges for end in (edge.subject, edge.object)}
    assert {"pancreatic adenocarcinoma", "autoimmune pancreatitis", "pancreas T2"} <= entities
    assert not {"serous cystadenoma", "liver metastasis", "liver T2"} & entities
    plain = GRAPH.for_case("pancreas", [])
    assert "pancreatic adenocarcinoma" not in {edge.object for edge in plain}


@pytest.mark.parametrize("organ", DIGESTIVE)
def test_a_case_gets_at_most_forty_edges_and_all_of_its_staging(organ: int) -> None:
    name = display_name(organ)
    every = GRAPH.for_case(name, GRAPH.kinds)
    assert len(every) == MOST_EDGES
    assert every == GRAPH.for_case(name, reversed(list(GRAPH.kinds)))
    staged = [e for e in GRAPH.edges if e.relation == "staged_as" and e.object.startswith(name)]
    assert set(staged) <= set(every)
    assert list(every) == sorted(every, key=GRAPH.edges.index)


def test_neighbours_touch_in_a_real_label_map(shared_data: Path) -> None:
    """At least 95 % of the neighbours that the scan shows are within 10 mm of each other."""
    image = nibabel.load(
        shared_data / "ct-totalsegmentator" / "example_seg_fast_force_split.nii.gz"
    )
    labels = MERGE[np.asarray(image.dataobj).astype(int)]
    spacing = image.header.get_zooms()
    number = {display_name(label): label for label in range(len(ORGANS))}
    pairs = [(e.subject, e.object) for e in GRAPH.edges if e.relation == "adjacent_to"]
    assert all(a in number and b in number for a, b in pairs)
    seen, near = 0, []
    for organ in {a for a, _ in pairs}:
        mask = labels == number[organ]
        if not mask.any():
            continue
        away = ndimage.distance_transform_edt(~mask, sampling=spacing)
        for other in (b for a, b in pairs if a == organ):
            there = labels == number[other]
            if there.any():
                seen += 1
                near += [(organ, other)] if away[there].min() <= 10 else []
    assert seen >= 25
    assert len(near) >= 0.95 * seen, set(pairs) - set(near)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (shipped,) = tumorchain_jax.engine.graph.__path__
    for file in Path(shipped).glob("*.tsv"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_version_changes_with_an_edge_and_not_with_the_order(files: Path) -> None:
    assert read_graph(files).version == GRAPH.version
    file = files / "risks.tsv"
    head, *rows = file.read_text().splitlines()
    file.write_text("\n".join([head, *reversed(rows)]) + "\n")
    assert read_graph(files).version == GRAPH.version
    file.write_text("\n".join([head, *rows[1:]]) + "\n")
    assert read_graph(files).version != GRAPH.version


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("risks", "liver\tlikes\tspleen\tgray", "relation: found likes"),
        ("risks", "rain\trisk_for\thepatocellular carcinoma\tnobody", "source: found nobody"),
        ("risks", "alcohol\trisk_for\tliver\tiarc", "liver: kind"),
        ("risks", "alcohol\trisk_for\thepatocellular carcinoma\tiarc", "edge: found twice"),
        ("anatomy", "liver\tpart_of\tliver capsule\tgray", "no circle"),
        ("anatomy", "cecum\tpart_of\tstomach\tgray", "the next larger whole alone"),
        ("spread", "liver\tpart_of", "spread.tsv:62: columns"),
        ("spread", "liver\t\tlungs\tgray", "spread.tsv:62: columns"),
        ("sources", "x\tD\ttitle\t1st edition", "level of x: found D"),
    ],
)
def test_bad_lines_are_refused(files: Path, file: str, line: str, said: str) -> None:
    with (files / f"{file}.tsv").open("a") as out:
        out.write(line + "\n")
    with pytest.raises(InputError, match=said):
        read_graph(files)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"subject\tobject\n"])
def test_bad_files_are_refused(files: Path, content: bytes | None) -> None:
    file = files / "spread.tsv"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(InputError, match=r"spread\.tsv"):
        read_graph(files)
