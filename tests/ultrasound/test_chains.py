"""Chains of thought: levels to text and back, without loss, and nothing that contradicts itself."""

import random
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.chains.annotation import levels_of
from tumorchain_jax.ultrasound.chains.fields import LEVELS, load_wording
from tumorchain_jax.ultrasound.chains.parser import parse
from tumorchain_jax.ultrasound.chains.record import Levels, levels_from_json
from tumorchain_jax.ultrasound.chains.text import chain
from tumorchain_jax.ultrasound.lesion import Lesion
from tumorchain_jax.ultrasound.lexicon import load_lexicon
from tumorchain_jax.ultrasound.sources import breast

NAMES = ("Fibroadenoma", "Ductal carcinoma in situ (DCIS)", "no special type, grade 2", "Cyst/oil")
FIELDS = load_wording().fields


def lesion(**fields: object) -> Lesion:
    """A picture of BrEaST."""
    values = {
        "id": "case", "image": "", "mask": "", "box": None, "patient": "breast:1",
        "patient_known": True, "view": "", "device": "", "source": "breast", "label": "benign",
    } | fields  # fmt: skip
    return Lesion(**values)


def any_state(rng: random.Random) -> Levels:
    """Fields at random, each known or not."""
    values = {}
    for name, field in FIELDS.items():
        if rng.random() < 0.6:
            some = rng.randint(1, 3) if field.many else 1
            values[name] = rng.sample(list(field.words) or NAMES, min(some, len(field.words) or 3))
    return Levels.of(values)


def good_state(rng: random.Random) -> Levels:
    """A state as above in which what contradicts something else was left out."""
    levels = any_state(rng)
    while faults := levels.faults():
        left = dict(levels.values)
        del left[faults[0].split(":")[0]]
        levels = Levels.of(left)
    return levels


def round_trips(count: int, seed: int) -> set[str]:
    rng = random.Random(seed)
    seen = set()
    for number in range(count):
        levels = good_state(rng)
        read = parse(chain(levels, "think" if number % 2 else "reasoning"))
        assert read.check("state") == levels
        assert read.verdict == {"benign": "0", "malignant": "1"}.get(levels.one("label"))
        assert levels_from_json(levels.as_json(), "state") == levels
        seen.add(str(levels))
    return seen


def test_random_states_come_back_from_their_chains() -> None:
    assert len(round_trips(500, 0)) > 480


@pytest.mark.system(haste=True)
def test_ten_thousand_random_states_come_back_from_their_chains() -> None:
    assert len(round_trips(10_000, 1)) > 9_500


def test_random_contradictions_are_refused() -> None:
    rng, refused = random.Random(2), 0
    for _ in range(300):
        levels = any_state(rng)
        if not levels.faults():
            continue
        refused += 1
        with pytest.raises(InputError, match="levels"):
            chain(levels)
        said = " ".join(
            field.sentence.format("; ".join(given) if not field.words else field.words[value])
            for name, given in levels.values.items()
            for field in [FIELDS[name]]
            for value in given
        )
        assert parse(f"<reasoning> {said} </reasoning>").faults
    assert refused > 150


def test_real_descriptors_come_back_and_no_two_rows_become_one(shared_data: Path) -> None:
    raw: dict[str, set] = {}
    for row in breast.read(shared_data / "bus-breast-lesions-usg"):
        levels = levels_of(
            lesion(
                id=row.id, label=row.label, birads=row.birads, descriptors=row.descriptors,
                histopathology=row.histopathology,
            )
        )  # fmt: skip
        assert parse(chain(levels, source=row.id)).check(row.id) == levels
        said = (row.label, row.birads, *sorted(row.descriptors.items()), row.histopathology)
        raw.setdefault(str(levels), set()).add(said)
        reading, lossy = levels.reading()
        assert (levels.one("finding") == "mass") == ("shape" in reading)
        assert ("margin" in lossy) == (len(levels.values.get("margin", ())) > 1)
    assert sum(map(len, raw.values())) == len(raw) > 180


def test_other_peoples_forms_are_read() -> None:
    """The paper's figure, and a text as the released files have them, in our words between."""
    figure = parse(
        "<think>Seen are these: Morphology has a long-to-short axis ratio > 1, and well-defined"
        " margins. Inside there is a hypoechoic pattern with absence of calcific deposits. It is"
        " classified as BIRADS 3. This has features of a benign lesion with histopathology type"
        " Fibroadenoma."
    )
    assert figure.levels == Levels.of(
        {
            "axis_ratio": ["above_1"],
            "margin": ["circumscribed"],
            "echo": ["hypoechoic"],
            "calcifications": ["none"],
            "category": ["3"],
            "label": ["benign"],
            "histopathology": ["Fibroadenoma"],
        }
    )
    assert (figure.form, figure.closed, figure.verdict, figure.faults) == ("think", False, "0", ())
    released = parse(
        "<reasoning>This lesion is not parallel, has angular and spiculated margins and irregular"
        " shape, it has hypoechoicwith presence of calcific deposits. Hence BIRADS 4C. Fits"
        " histopathology category: invasive ductal carcinoma. Thus this is a malignant lesion."
        "</reasoning> <answer> 1 </answer>"
    )
    assert released.levels == Levels.of(
        {
            "orientation": ["not_parallel"],
            "margin": ["angular", "spiculated"],
            "shape": ["irregular"],
            "echo": ["hypoechoic"],
            "calcification": ["present"],
            "category": ["4c"],
            "label": ["malignant"],
            "histopathology": ["invasive ductal carcinoma"],
        }
    )
    assert (released.closed, released.verdict, released.unread) == (True, "1", ())
    with pytest.raises(InputError, match="our words"):
        released.check("text")


def test_a_text_cut_anywhere_says_nothing_else_than_the_whole() -> None:
    levels = Levels.of(
        {
            "finding": ["mass"],
            "margin": ["angular", "indistinct"],
            "category": ["4a"],
            "label": ["malignant"],
            "histopathology": ["Ductal carcinoma in situ (DCIS)", "Cyst"],
        }
    )
    whole = chain(levels)
    for end in range(len(whole)):
        read = parse(whole[:end])
        assert not read.faults
        assert set(read.levels.values.items()) <= set(levels.values.items())
        assert read.verdict in (None, "1")
        if end < whole.index("<answer> 1") + 10:
            assert read.verdict is None
        if "<reasoning>" in whole[:end] and "</reasoning>" not in whole[:end]:
            assert not read.closed
    assert parse(whole[: whole.index("4a") + 1]).cut.endswith("category 4")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Its shape is oval. Its shape is round.", "shape: oval and round"),
        ("Its margin is circumscribed and spiculated.", "margin: circumscribed"),
        ("By pathology this is a benign lesion. </reasoning> <answer> 1 </answer>", "answer: 1"),
        ("<answer> 0 </answer> <answer> 1 </answer>", "answer: 0 and 1"),
        ("<answer> 7 </answer>", "answer: '7'"),
        ("No lesion is seen. This is BI-RADS category 4b.", "category: 4b with finding none"),
        ("A non-mass lesion is seen. Its shape is oval.", "shape: oval with finding non_mass"),
        ("Calcification is absent. Of calcifications there are coarse ones.", "calcifications"),
        ("No lesion is seen. By pathology this is a benign lesion.", "label: benign with"),
        ("Classified as BIRADS 5a.", "category: '5a'"),
    ],
)
def test_contradictions_of_a_text_are_told(text: str, fault: str) -> None:
    read = parse(text)
    assert read.faults[0].startswith(fault)
    with pytest.raises(InputError, match="no contradiction"):
        read.check("text")


@pytest.mark.parametrize(
    "text",
    [
        "There is no sign that this is a malignant lesion.",
        "Unlikely, as irregular shape is a mark of cancer.",
        "It might be BIRADS 5.",
        "Its margins are not circumscribed margins.",
    ],
)
def test_denied_and_doubted_phrases_are_not_taken(text: str) -> None:
    read = parse(text)
    assert read.levels.values == {}
    assert read.unread == (text,)


def test_words_of_other_annotations_keep_their_meaning_and_say_what_is_lost() -> None:
    row = lesion(
        source="bus-cot",
        descriptors={
            "edge": "Irregular", "boundary": "BoundarySomewhatUnclear", "echo": "SlightlyLowEcho",
            "calcifications": "CoarseCalcification",
        },
        birads="6", label="malignant", histopathology="Invasive ductal carcinoma, Paget disease",
    )  # fmt: skip
    levels = levels_of(row)
    assert levels.values["calcification"] == ("present",)
    assert levels.values["histopathology"] == ("Invasive ductal carcinoma", "Paget disease")
    reading, lossy = levels.reading()
    assert reading == {"echo": "hypoechoic"}
    assert lossy == ("boundary", "calcification", "calcifications", "category", "echo", "edge",
                     "finding")  # fmt: skip
    with pytest.raises(InputError, match=r"descriptors\.edge: found 'Round'"):
        levels_of(lesion(source="bus-cot", descriptors={"edge": "Round"}))
    with pytest.raises(InputError, match="margin: circumscribed and angular"):
        levels_of(lesion(descriptors={"margin": "circumscribed&angular", "shape": "oval"}))


def test_the_wording_has_every_value_of_the_lexicon_at_one_level_each() -> None:
    assert {field.level for field in FIELDS.values()} == set(LEVELS)
    for known in load_lexicon().fields:
        assert set(known.values) <= set(FIELDS[known.name].words)
        assert set(FIELDS[known.name].broader.values()) <= set(known.values)
