"""`tumorchain bus chains`: a prepared folder -> records of five levels and rows of messages.

OUTPUT/records.jsonl        five levels of every picture, its cluster and fold: the truth
OUTPUT/asked-ARM.jsonl      what a model is given of every lesion
OUTPUT/ARM.jsonl            the same with what it is to write, of the development part
OUTPUT/ARM-without-K.jsonl  of it, without the fold K
OUTPUT/tokenizer.json       for models from random weights, trained on the development part
OUTPUT/pictures/            pictures under neutral names
OUTPUT/regions/             the lesion's region of each, cut from the picture and enlarged
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.data.json_lines import read_lines
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.ultrasound.chains.annotation import levels_of
from tumorchain_jax.ultrasound.chains.fields import load_wording
from tumorchain_jax.ultrasound.chains.messages import (
    ARMS,
    FOLDERS,
    Row,
    asked,
    check_asked,
    neutral_name,
    taught,
)
from tumorchain_jax.ultrasound.chains.record import Levels, levels_from_json
from tumorchain_jax.ultrasound.chains.text import ANSWERS, chain
from tumorchain_jax.ultrasound.folds import deal, test_part
from tumorchain_jax.ultrasound.lesion import Lesion, read_manifest
from tumorchain_jax.ultrasound.picture import read_picture
from tumorchain_jax.ultrasound.view import render

RECORDS, REGION_SIDE, VOCABULARY = "records.jsonl", 224, 1024


def write_chains(
    data: Path, output: Path, folds: int = 5, fold_seed: int = 0, with_pathology: bool = False
) -> dict[str, Any]:
    """Write records, rows and pictures of a prepared folder.

    Args:
        with_pathology: see `messages.taught`.

    Returns:
        counts: of records, rows and fields, and of fields that the lexicon cannot hold.

    Raises:
        InputError: an annotation is not known or contradicts itself, folds cannot be dealt, or the
            output is there.
    """
    rows = read_manifest(data)
    fold_of = _folds(rows, folds, fold_seed)
    # The order of a manifest tells classes.
    order = sorted(range(len(rows)), key=lambda number: neutral_name(rows[number].id))
    rows, fold_of = [rows[number] for number in order], fold_of[order]
    levels = [levels_of(row) for row in rows]
    with atomic_directory(output) as part:
        for name in FOLDERS:
            (part / name).mkdir()
        _write(part / RECORDS, map(_record, rows, levels, fold_of.tolist()))
        chosen = [number for number, row in enumerate(rows) if row.label in ANSWERS]
        texts = []
        for arm in ARMS:
            of_arm = [k for k in chosen if arm != "look" or rows[k].box is not None]
            given = [asked(arm, neutral_name(rows[k].id)) for k in of_arm]
            for row in given:
                check_asked(arm, row, row["id"])
            _write(part / f"asked-{arm}.jsonl", given)
            told = {
                k: taught(arm, neutral_name(rows[k].id), levels[k], with_pathology)
                for k in of_arm
                if fold_of[k] >= 0
            }
            _write(part / f"{arm}.jsonl", told.values())
            for fold in range(folds):
                rest = [row for k, row in told.items() if fold_of[k] != fold]
                _write(part / f"{arm}-without-{fold}.jsonl", rest)
            texts += [turn["content"] for row in told.values() for turn in row["messages"]]
        Tokenizer.train(texts, VOCABULARY).save(part)
        for row in tqdm(rows, desc="pictures", unit="picture", disable=None):
            _write_pictures(data, part, row)
    known = Counter(name for each in levels for name in each.values)
    lossy = Counter(name for each in levels for name in each.reading()[1])
    return {
        "records": len(rows),
        "lesions": len(chosen),
        "test_part": int((fold_of[chosen] == -1).sum()),
        "known": dict(known),
        "more_than_the_lexicon_holds": dict(lossy),
    }


def _folds(rows: Sequence[Lesion], folds: int, seed: int) -> np.ndarray:
    """The fold of each picture, as `crossval` deals; -1 for the test part and normal pictures."""
    is_test = test_part(rows)
    dealt = [k for k, row in enumerate(rows) if row.label in ANSWERS and not is_test[k]]
    fold_of = np.full(len(rows), -1)
    fold_of[dealt] = deal([rows[number] for number in dealt], folds, seed)
    return fold_of


def _record(row: Lesion, levels: Levels, fold: int) -> dict[str, Any]:
    wording = load_wording()
    return {
        "id": neutral_name(row.id),
        "picture": row.id,
        "source": row.source,
        "cluster": row.cluster,
        "fold": fold,
        "box": asdict(row.box) if row.box else None,
        "width": row.width,
        "height": row.height,
        **levels.as_json(),
        "chain": chain(levels, source=row.id),
        "beyond_lexicon": list(levels.reading()[1]),
        "lexicon": wording.lexicon,
        "wording": wording.version,
    }


def _write_pictures(data: Path, part: Path, row: Lesion) -> None:
    name = neutral_name(row.id)
    Image.fromarray(read_picture(data / row.image).grey).save(part / "pictures" / f"{name}.png")
    if row.box is not None:
        region = render(data, row, "lesion", REGION_SIDE)
        Image.fromarray(region).save(part / "regions" / f"{name}.png")


def _write(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def read_records(folder: Path) -> Iterator[tuple[dict[str, Any], Levels]]:
    """The records that were written, each with its levels.

    Raises:
        InputError: a line is malformed or contradicts itself.
    """
    for source, _, values in read_lines(folder / RECORDS):
        if not isinstance(values.get("id"), str) or type(values.get("fold")) is not int:
            hint = "write the records again with `tumorchain bus chains`"
            raise InputError(source, "id, fold", "not both", "a text and a number", hint)
        yield values, levels_from_json(values, source)
