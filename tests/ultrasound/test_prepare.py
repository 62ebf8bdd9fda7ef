"""Public data sets to one manifest: counts of the real ones, and bad ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.folds import check_no_leak, deal, test_part
from tumorchain_jax.ultrasound.lesion import Lesion, read_manifest
from tumorchain_jax.ultrasound.prepare import facts_text, prepare

test_part.__test__ = False  # a function of the package, not a test


@pytest.fixture(scope="module")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("bus") / "all"
    sets = [shared_data / name for name in ("bus-bra", "bus-breast-lesions-usg", "bus-busi")]
    return prepare(sets, folder), folder


@pytest.mark.system(haste=True)
def test_real_sets_have_their_published_counts(real: tuple[dict, Path]) -> None:
    facts, folder = real
    assert (facts["pictures"], facts["lesions"], facts["normal"]) == (795, 712, 83)
    assert facts["sets"] == {
        "bus-bra": {"malignant": 138, "benign": 132},
        "breast": {"benign": 123, "malignant": 79, "normal": 3},
        "busi": {"benign": 120, "malignant": 120, "normal": 80},
    }
    assert facts["patients"] == 154 + 205
    assert facts["sets_without_patients"] == ["busi"]
    assert facts["near_duplicates_of_two_labels"] == []
    rows = read_manifest(folder)
    breast = next(row for row in rows if row.source == "breast" and row.descriptors)
    assert {"shape", "margin", "echo", "posterior"} <= set(breast.descriptors)
    assert breast.pixel_mm is not None
    assert 0.05 < breast.pixel_mm < 0.5


@pytest.mark.system(haste=True)
def test_groups_of_busi_are_those_that_others_found(
    real: tuple[dict, Path], shared_data: Path
) -> None:
    """All pairs of `index.csv`, and no picture of another set joins one of them."""
    rows = read_manifest(real[1])
    cluster = {row.id: row.cluster for row in rows}
    groups: dict[str, set[int]] = {}
    for line in (shared_data / "bus-busi" / "index.csv").read_text().splitlines()[1:]:
        image, *_, group, _ = line.split(",")
        name = "busi_" + image.split("/")[1].removesuffix(".png").replace(" ", "_")
        groups.setdefault(group, set()).add(cluster[name])
    assert all(len(found) == 1 for found in groups.values())
    sources = {row.cluster: row.source for row in rows}
    assert all(sources[row.cluster] == row.source for row in rows)


@pytest.mark.system(haste=True)
def test_folds_of_the_real_sets_part_no_patient_and_keep_the_shares(
    real: tuple[dict, Path],
) -> None:
    rows = [row for row in read_manifest(real[1]) if row.label != "normal"]
    assert 0.15 < test_part(rows).mean() < 0.25
    folds = deal(rows, 5, 0)
    check_no_leak(rows, folds)
    malignant = np.array([row.label == "malignant" for row in rows])
    for fold in range(5):
        assert abs((folds == fold).mean() - 0.2) < 0.01
        assert abs(malignant[folds == fold].mean() - malignant.mean()) < 0.03
    assert (deal(rows, 5, 1) != folds).any()
    np.testing.assert_array_equal(deal(rows, 5, 0), folds)


def changed(rows: list[Lesion], number: int, **values: object) -> list[Lesion]:
    fields = json.loads(rows[number].to_json()) | values
    fields["box"] = rows[number].box
    return [Lesion(**fields) if k == number else row for k, row in enumerate(rows)]


def test_planted_leaks_are_refused(busbra: Path, tmp_path: Path) -> None:
    """A second view of a patient, and a picture flipped, shrunk and compressed, in other folds."""
    name = busbra / "Images" / "bus_0003-s.png"
    copy = Image.open(name).transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((90, 72))
    copy.save(tmp_path / "copy.jpg", quality=60)
    Image.open(tmp_path / "copy.jpg").save(busbra / "Images" / "bus_0004-s.png")
    mask = Image.open(busbra / "Masks" / "mask_0004-s.png").resize((90, 72))
    mask.save(busbra / "Masks" / "mask_0004-s.png")
    prepare([busbra], tmp_path / "out")
    rows = read_manifest(tmp_path / "out")
    assert rows[4].cluster == rows[5].cluster
    with pytest.raises(InputError, match="near duplicate"):
        check_no_leak(rows, np.array([0, 0, 0, 0, 0, 1]))
    with pytest.raises(InputError, match="patient bus-bra:1"):
        check_no_leak(rows, np.array([0, 1, 0, 0, 0, 0]))


def test_joined_masks_boxes_and_text(busi: Path, tmp_path: Path) -> None:
    second = np.zeros((96, 120), bool)
    second[2:6, 3:9] = True
    Image.fromarray(second).save(busi / "benign" / "benign (1)_mask_1.png")
    facts = prepare([busi], tmp_path / "out")
    row = next(row for row in read_manifest(tmp_path / "out") if row.id == "busi_benign_(1)")
    assert row.box is not None
    assert (row.box.x, row.box.y) == (3, 2)
    assert "busi names no patients" in facts_text(facts)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda f: (f / "benign" / "benign (1)_mask.png").unlink(), "mask"),
        (
            lambda f: Image.new("L", (120, 96)).save(f / "benign" / "benign (1)_mask.png"),
            "no lesion",
        ),
        (
            lambda f: Image.new("1", (60, 96), 1).save(f / "benign" / "benign (1)_mask.png"),
            "size",
        ),
        (
            lambda f: (f / "malignant" / "benign (1).png").write_bytes(
                (f / "benign" / "benign (1).png").read_bytes()
            ),
            "class",
        ),
        (lambda f: (f / "benign" / "benign (2).png").write_bytes(b"PNG"), "format"),
    ],
)
def test_bad_pictures_are_refused_and_leave_nothing(
    busi: Path, tmp_path: Path, break_it: object, said: str
) -> None:
    assert callable(break_it)
    break_it(busi)
    with pytest.raises(InputError, match=said):
        prepare([busi], tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_bad_pictures_can_be_left_out_and_are_listed(busi: Path, tmp_path: Path) -> None:
    (busi / "benign" / "benign (2).png").write_bytes(b"PNG")
    facts = prepare([busi], tmp_path / "out", skip_bad=True)
    assert (facts["pictures"], facts["left_out"]) == (9, 1)
    assert "busi/benign (2)" in (tmp_path / "out" / "left_out.tsv").read_text()


def test_tables_without_patients_and_unknown_folders_are_refused(
    busbra: Path, tmp_path: Path
) -> None:
    table = busbra / "bus_data.csv"
    table.write_text(table.read_text().replace("Case", "Patient"))
    with pytest.raises(InputError, match="no column Case"):
        prepare([busbra], tmp_path / "out")
    (tmp_path / "other").mkdir()
    for folder in (tmp_path / "other", tmp_path / "none"):
        with pytest.raises(InputError, match="data set"):
            prepare([folder], tmp_path / "out")
    with pytest.raises(InputError, match="twice"):
        prepare([busbra, busbra], tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bus_0001-l,1,", "bus_0001-l,,", "patient: found an empty name"),
        ("benign,4,", "benign,99,", "BI-RADS: found '99'"),
    ],
)
def test_rows_that_would_mislead_are_refused(
    busbra: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    table = busbra / "bus_data.csv"
    table.write_text(table.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        prepare([busbra], tmp_path / "out")


def test_links_out_of_a_data_set_are_refused(busbra: Path, tmp_path: Path) -> None:
    picture = busbra / "Images" / "bus_0001-l.png"
    picture.rename(tmp_path / "elsewhere.png")
    picture.symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(InputError, match="outside the data set"):
        prepare([busbra], tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image": "../a.png"}, "image"),
        ({"image": "/etc/passwd"}, "image"),
        ({"mask": "../../m.png"}, "mask"),
        ({"label": "unsure"}, "label"),
        ({"birads": "7"}, "birads"),
        ({"box": {"x": 1}}, "box"),
        ({"pixel_mm": -1}, "pixel_mm"),
        ({"patient": ""}, "patient"),
        ({"descriptors": [1]}, "descriptors"),
        ({"more": 1}, "more"),
    ],
)
def test_manifests_that_lie_are_refused(
    busbra: Path, tmp_path: Path, change: dict, said: str
) -> None:
    prepare([busbra], tmp_path / "out")
    path = tmp_path / "out" / "manifest.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | change), *rest]) + "\n")
    with pytest.raises(InputError, match=said):
        read_manifest(tmp_path / "out")


def test_two_labels_of_a_view_and_a_fold_of_one_class_are_refused(
    busbra: Path, tmp_path: Path
) -> None:
    prepare([busbra], tmp_path / "out")
    rows = read_manifest(tmp_path / "out")
    with pytest.raises(InputError, match="every label"):
        deal(rows, 4, 0)
    path = tmp_path / "out" / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1] |= {"view": lines[0]["view"], "label": "malignant"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="benign and malignant"):
        read_manifest(tmp_path / "out")


def test_released_layout_of_bus_cot(tmp_path: Path) -> None:
    """By the schema of its public documentation."""
    root = tmp_path / "BUSCoT"
    crops = root / "BUS-Lesion" / "trainval"
    crops.mkdir(parents=True)
    (root / "DatasetFiles").mkdir()
    records = {}
    for number, label in enumerate(("Benign", "Malignant")):
        rng = np.random.default_rng(number)
        name = f"{number:06d}@0.png"
        Image.fromarray(rng.integers(0, 255, (64, 80), np.uint8)).save(crops / name)
        records[f"trainval_{name}"] = {
            "image_path": f"BUS-Lesion/trainval/{name}",
            "split": "trainval",
            "pathology_histology": {"pathology": label, "subtype": {"IDC": {"histology": "x"}}},
            "us_report": {"BIRADS": "4A", "LesionEdge": "Irregular"},
        }
    table = root / "DatasetFiles" / "lesion_dataset.json"
    table.write_text(json.dumps(records))
    prepare([root], tmp_path / "out")
    rows = read_manifest(tmp_path / "out")
    assert [(row.label, row.birads, row.descriptors) for row in rows] == [
        ("benign", "4a", {"edge": "Irregular"}), ("malignant", "4a", {"edge": "Irregular"}),
    ]  # fmt: skip
    records["trainval_000000@0.png"]["image_path"] = "../../secret.png"
    table.write_text(json.dumps(records))
    with pytest.raises(InputError, match="image_path"):
        prepare([root], tmp_path / "other")
