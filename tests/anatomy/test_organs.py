"""Table 10, TotalSegmentator's names, and the names of organs in a text."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import (
    DIGESTIVE,
    MERGE,
    NAMES,
    ORGANS,
    SUB_ORGANS,
    TOTALSEGMENTATOR,
    display_name,
    labels_named,
    merge_labels,
    normalise_name,
)
from tumorchain_jax.core.errors import InputError

LABEL = {name: label for label, name in enumerate(ORGANS)}


def test_names_are_those_of_totalsegmentator(shared_data: Path):
    class_map = json.loads((shared_data / "ct-totalsegmentator" / "class_map.json").read_text())
    assert dict(enumerate(TOTALSEGMENTATOR[1:], start=1)) == {
        int(index): name for index, name in class_map["total"].items()
    }


def test_merging_is_that_of_the_papers_table_10(shared_data: Path):
    papers = list((shared_data.parent / "seeds").glob("002_*.txt"))
    if not papers:
        pytest.skip("the paper's text is not at hand")
    table = papers[0].read_text().split("TotalSeg. Label\n")[1].split("\n\n")[0]
    label, rows = -1, {}
    for line in table.splitlines():
        new_label = re.fullmatch(r"(\d+) (\S+) (.+) (\d+)", line)
        if new_label:
            label = int(new_label[1])
            assert ORGANS[label] == new_label[2]
        name, index = line.removeprefix(f"{label} {ORGANS[label]} ").rsplit(" ", 1)
        assert TOTALSEGMENTATOR[int(index)] == name.replace(" ", "_")
        rows[int(index)] = label
    assert rows == dict(enumerate(MERGE.tolist()))


def test_tables_have_their_sizes():
    assert (len(ORGANS), len(TOTALSEGMENTATOR)) == (57, 118)
    assert MERGE.dtype == np.uint8
    assert sorted(set(MERGE.tolist())) == list(range(57))
    assert [ORGANS[label] for label in DIGESTIVE] == [
        *("liver", "pancreas", "stomach", "colorectum", "esophagus")
    ]


def test_merge_labels_keeps_the_shape():
    ids = np.array([[0, 25, 26], [92, 103, 117]], np.int16)
    merged = merge_labels(ids)
    assert merged.dtype == np.uint8
    assert [[ORGANS[label] for label in row] for row in merged] == [
        ["background", "sacrum", "vertebrae_S1"],
        ["rib_left", "rib_left", "costal_cartilages"],
    ]


@pytest.mark.parametrize(
    ("ids", "field"),
    [
        (np.array([0, 118]), "organ ids"),
        (np.array([-1, 5]), "organ ids"),
        (np.array([1.0]), "voxel type"),
    ],
)
def test_merge_labels_refuses_other_label_maps(ids: np.ndarray, field: str):
    with pytest.raises(InputError) as error:
        merge_labels(ids)
    assert error.value.field == field


@pytest.mark.parametrize("label", range(1, 57))
def test_every_organ_is_named_by_its_own_names(label: int):
    for name in (ORGANS[label], display_name(label), display_name(label).upper()):
        (mention,) = labels_named(f"See the {name}.")
        assert mention.labels == (label,)
        assert mention.start == len("See the ")
        assert mention.end == len("See the ") + len(name)


def test_display_names_read_like_a_sentence():
    assert display_name(LABEL["kidney_left"]) == "left kidney"
    assert display_name(LABEL["colorectum"]) == "colon"
    assert display_name(LABEL["liver"]) == "liver"


def test_every_name_matches_itself_and_nothing_else():
    for name, labels in NAMES.items():
        assert name == normalise_name(name)
        assert re.fullmatch(r"[a-z0-9]+( [a-z0-9]+)*", name)
        expected = [(0, len(name), name, labels)] if labels else []
        assert labels_named(name) == expected
        assert all(0 < label < len(ORGANS) for label in labels)


def test_sub_organs_name_their_organ():
    assert set(SUB_ORGANS) == set(DIGESTIVE)
    for label, names in SUB_ORGANS.items():
        for name in names:
            assert [mention.labels for mention in labels_named(name)] == [(label,)]


@pytest.mark.parametrize(
    "text",
    [
        "the head, the neck, the body and the tail of a lesion",
        "fundus",
        "T1 N0 M0",
        "stage T4",
        "liverspleen",
        "colón",
        "hipólito",
        "the hepatic artery and the left renal vein",
        "portal venous phase",
        "segment I saw",
        "",
    ],
)
def test_ordinary_words_and_other_structures_name_no_organ(text: str):
    assert labels_named(text) == []


@pytest.mark.parametrize(
    ("text", "organs"),
    [
        ("both kidneys", ["kidney_right kidney_left"]),
        ("Left-sided: left\n kidney, LIVER", ["kidney_left", "liver"]),
        ("kidney_left; small--bowel", ["kidney_left", "small_bowel"]),
        ("splenomegaly", ["spleen"]),
        ("hepatic flexure of the colon", ["colorectum", "colorectum"]),
        ("hepatic mass near the splenic vein", ["liver", "portal_vein_and_splenic_vein"]),
        ("head of pancreas; uncinate process of the pancreas", ["pancreas", "pancreas"]),
        ("Cardia, antrum and pylorus", ["stomach", "stomach", "stomach"]),
        ("lower thoracic oesophagus", ["esophagus"]),
        ("caecum, rectal wall", ["colorectum", "colorectum"]),
        ("left lung", ["lung_upper_lobe_left lung_lower_lobe_left"]),
        ("right middle lobe", ["lung_middle_lobe_right"]),
        ("gall bladder and bladder", ["gallbladder", "urinary_bladder"]),
        ("IVC", ["inferior_vena_cava"]),
        ("L3-L4, T12 and the S1 vertebra",
         ["lumbar_vertebrae", "lumbar_vertebrae", "thoracic_vertebrae", "vertebrae_S1"]),
        ("segment VIII", ["liver"]),
        ("left renal cyst", ["kidney_left kidney_cyst"]),
    ],
)  # fmt: skip
def test_reports_name_organs_in_many_ways(text: str, organs: list[str]):
    named = [" ".join(ORGANS[label] for label in mention.labels) for mention in labels_named(text)]
    assert named == organs


def test_spans_count_characters():
    text = "肝脏—“Left  kidney” 🙂liver\ud800 spleen"
    words = [text[mention.start : mention.end] for mention in labels_named(text)]
    assert words == ["Left  kidney", "liver", "spleen"]
    assert [mention.name for mention in labels_named(text)] == ["left kidney", "liver", "spleen"]
