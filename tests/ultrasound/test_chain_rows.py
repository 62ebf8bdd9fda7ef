"""Records and rows of messages: what a model is given tells nothing of the truth."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.chat_rows import read_chat_rows
from tumorchain_jax.ultrasound.chains.messages import ARMS, asked, check_asked
from tumorchain_jax.ultrasound.chains.parser import parse
from tumorchain_jax.ultrasound.chains.write import read_records, write_chains
from tumorchain_jax.ultrasound.lesion import MANIFEST, Box, Lesion, lines, read_manifest

PLANTED = "Plantedoma"
OTHER = {"benign": "malignant", "malignant": "benign"}


def write_manifest(folder: Path, count: int = 24) -> Path:
    """Lesions with descriptors, two pictures of each patient, and a normal one."""
    (folder / "images").mkdir(parents=True)
    rng, rows = np.random.default_rng(0), []
    for number in range(count):
        label = "malignant" if number // 2 % 2 else "benign"
        name = f"breast_{label}_{number}"
        Image.fromarray(rng.integers(0, 255, (40, 60), np.uint8)).save(
            folder / "images" / f"{name}.png"
        )
        rows.append(
            Lesion(
                id=name, image=f"images/{name}.png", mask="", box=Box(10, 10, 20, 15),
                patient=f"breast:{number // 2}", patient_known=True, view=str(number % 2),
                device="", source="breast", label=label, birads="4a",
                descriptors={
                    "shape": "irregular" if label == "malignant" else "oval",
                    "margin": "not circumscribed - angular&indistinct", "echo": "hypoechoic",
                },
                histopathology=PLANTED, width=60, height=40,
                hash=f"{rng.integers(2**63):016x}" * 8, cluster=number // 2,
            )
        )  # fmt: skip
    normal = {"label": "normal", "birads": "1", "descriptors": {}, "histopathology": ""}
    rows.append(replace(rows[0], id="n", patient="breast:n", cluster=count, box=None, **normal))
    (folder / MANIFEST).write_text("".join(lines(rows)))
    return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifest(tmp_path_factory.mktemp("chains") / "bus")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def changed_copy(folder: Path, output: Path, change: Callable[[Lesion], Lesion]) -> Path:
    shutil.copytree(folder, output)
    rows = [change(row) for row in read_manifest(folder)]
    (output / MANIFEST).write_text("".join(lines(rows)))
    return output


def test_what_is_asked_does_not_change_with_the_truth(prepared: Path, tmp_path: Path) -> None:
    def flipped(row: Lesion) -> Lesion:
        if row.label == "normal":
            return row
        other = {"shape": "round", "margin": "circumscribed", "echo": "anechoic"}
        return replace(
            row, label=OTHER[row.label], birads="5", descriptors=other, histopathology="Otheroma"
        )

    write_chains(prepared, tmp_path / "a", folds=2)
    other = changed_copy(prepared, tmp_path / "flipped", flipped)
    write_chains(other, tmp_path / "b", folds=2)
    for arm in ARMS:
        one, two = (read(tmp_path / each / f"asked-{arm}.jsonl") for each in "ab")
        assert one == two
        taught = [(tmp_path / each / f"{arm}.jsonl").read_text() for each in "ab"]
        assert taught[0] != taught[1]
        text = (tmp_path / "a" / f"asked-{arm}.jsonl").read_text()
        for told in (PLANTED, "breast_", "category 4", "hypoechoic", "assistant"):
            assert told not in text


def test_rows_have_the_chain_and_its_answer_and_the_files_are_there(
    prepared: Path, tmp_path: Path
) -> None:
    facts = write_chains(prepared, tmp_path / "out", folds=2)
    assert (facts["records"], facts["lesions"]) == (25, 24)
    assert facts["more_than_the_lexicon_holds"]["margin"] == 24
    read_back = read_records(tmp_path / "out")
    records = {values["id"]: (values, levels) for values, levels in read_back}
    assert sum(values["pathology"]["label"] == "normal" for values, _ in records.values()) == 1
    for arm in ARMS:
        rows = read(tmp_path / "out" / f"{arm}.jsonl")
        assert len(rows) == 24 - facts["test_part"]
        for row in rows:
            values, levels = records[row["id"]]
            assert [turn["role"] for turn in row["messages"]] == ["user", "assistant"] * len(
                row["images"]
            )
            assert all((tmp_path / "out" / path).is_file() for path in row["images"])
            said = parse(" ".join(turn["content"] for turn in row["messages"][1::2]))
            assert said.verdict == {"benign": "0", "malignant": "1"}[levels.one("label")]
            wanted = {} if arm == "direct" else dict(levels.values)
            assert said.levels.values == {
                name: given for name, given in wanted.items()
                if name not in ("label", "histopathology")
            }  # fmt: skip
            assert said.faults == ()
            assert values["fold"] >= 0
        for fold in range(2):
            rest = read(tmp_path / "out" / f"{arm}-without-{fold}.jsonl")
            assert rest == [row for row in rows if records[row["id"]][0]["fold"] != fold]
            assert 0 < len(rest) < len(rows)
        learnt = read_chat_rows(tmp_path / "out" / f"{arm}.jsonl")
        assert [len(each.pictures) for each in learnt] == [len(row["images"]) for row in rows]
    first = read(tmp_path / "out" / "look.jsonl")[0]["messages"]
    assert "shape" not in first[1]["content"]
    assert "shape" in first[3]["content"]
    write_chains(prepared, tmp_path / "paper", folds=2, with_pathology=True)
    chains = (tmp_path / "paper" / "chain.jsonl").read_text()
    assert f"The histopathology is {PLANTED}. </reasoning> <answer>" in chains


PLANTS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "an answer": lambda row: row["messages"].append({"role": "assistant", "content": "1"}),
    "a word": lambda row: row["messages"][0].update(content=row["messages"][0]["content"] + " 4a"),
    "a file's name": lambda row: row.update(images=["pictures/malignant_1.png"]),
    "a field": lambda row: row.update(label="malignant"),
    "an id": lambda row: row.update(id="malignant", images=["pictures/malignant.png"]),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_label_is_refused(plant: str) -> None:
    row = asked("direct", "0123456789abcdef")
    check_asked("direct", row, "row")
    PLANTS[plant](row)
    with pytest.raises(InputError, match="row"):
        check_asked("direct", row, "row")


def test_chains_of_bad_input_are_refused(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd(row: Lesion) -> Lesion:
        return replace(row, descriptors={"shape": "star"} if row.id == "breast_benign_0" else {})

    bad = changed_copy(prepared, tmp_path / "bad", odd)
    with pytest.raises(InputError, match=r"breast_benign_0: descriptors\.shape: found 'star'"):
        write_chains(bad, tmp_path / "out", folds=2)
    assert not (tmp_path / "out").exists()
    words = ["bus", "chains", "--data", str(prepared), "-o", str(tmp_path / "good")]
    for wrong in (["--folds", "1"], ["--edition", "2025"]):
        assert main([*words, *wrong]) == 2
    assert main([*words, "--folds", "2"]) == 0
    assert "24 lesions asked about" in capsys.readouterr().out
    path = tmp_path / "good" / "records.jsonl"
    path.write_text(re.sub('"category": "4a"', '"category": "9"', path.read_text(), count=1))
    with pytest.raises(InputError, match=r"records\.jsonl:\d+: levels: found category: '9'"):
        list(read_records(tmp_path / "good"))
