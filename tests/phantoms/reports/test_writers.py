"""What a report's truth says is in its text, in the right words and numbers."""

import re
from functools import cache
from itertools import combinations

import pytest

from tumorchain_jax.anatomy.organs import SUB_ORGANS, display_name
from tumorchain_jax.anatomy.staging import Extent, stage
from tumorchain_jax.phantoms.reports.cases import make_case
from tumorchain_jax.phantoms.reports.draft import Draft
from tumorchain_jax.phantoms.reports.identifiers import KINDS
from tumorchain_jax.phantoms.reports.pathology import write_pathology
from tumorchain_jax.phantoms.reports.patients import draw_patient
from tumorchain_jax.phantoms.reports.phrases import phrase_book, word_book, wordings
from tumorchain_jax.phantoms.reports.statements import VALUES
from tumorchain_jax.phantoms.reports.styles import HELD_OUT, OPEN_STYLES, STYLES
from tumorchain_jax.phantoms.reports.writer import write_radiology

PATHOLOGY = ("pathology", "synoptic", "pathologie")
SEEDS = range(24)
LENGTH = re.compile(r"((?:\d+(?:[.,]\d+)?(?: ?x ?| \u00d7 | by )?)+) (mm|cm)")
DESCRIBED = ("density", "shape", "boundary", "others", "depth")


@cache
def drafts(style: str) -> list[Draft]:
    return [write_radiology(draw_patient(seed), STYLES[style], seed) for seed in SEEDS]


def words_for(language: str, attribute: str, value: str) -> set[str]:
    """All wordings of a value, whatever the organ and the form."""
    heads = {attribute, f"{attribute}_p", "margin" if attribute == "boundary" else attribute}
    return {
        wording.lower()
        for key, found in word_book(language).items()
        if key.split(".")[0] in heads and key.split(".")[1] == value
        for wording in found
    }


def longest_mm(text: str) -> list[float]:
    """The longest axis of each length that a text names."""
    return [
        max(float(n.replace(",", ".")) for n in re.findall(r"\d+(?:[.,]\d+)?", axes))
        * (10 if unit == "cm" else 1)
        for axes, unit in LENGTH.findall(text)
    ]


def test_writers_are_eleven_of_which_three_are_held_out():
    assert len(STYLES) == 11
    assert {*OPEN_STYLES} | {*HELD_OUT} == {*STYLES}
    assert HELD_OUT == ("template", "capitals", "letter")


@pytest.mark.parametrize("style", STYLES)
def test_writer_is_a_function_of_the_seed(style):
    for seed in (0, 41):
        assert make_case(seed, STYLES[style], True) == make_case(seed, STYLES[style], True)
    assert len({draft.text for draft in drafts(style)}) == len(SEEDS)


@pytest.mark.parametrize("style", [*STYLES, *PATHOLOGY])
def test_every_statement_has_six_wordings_or_more(style):
    book = phrase_book(style)
    few = {role: sum(map(wordings, found)) for role, found in book.items() if role[:4] != "page"}
    unstated = ("technique", "things", "specimen", "micro")
    assert {role: n for role, n in few.items() if n < 6 and role not in unstated} == {}


def test_no_two_styles_share_a_template():
    books = {name: phrase_book(name) for name in (*STYLES, *PATHOLOGY)}
    templates = {
        name: {t.strip(" .").lower() for found in book.values() for t in found}
        for name, book in books.items()
    }
    shared = {
        (one, other): templates[one] & templates[other] for one, other in combinations(books, 2)
    }
    assert {pair: both for pair, both in shared.items() if both} == {}


@pytest.mark.parametrize("style", STYLES)
def test_sentence_says_what_it_states_and_no_other_value(style):
    language, checked = STYLES[style].language, 0
    for draft in drafts(style):
        for sentence in draft.sentences():
            text = sentence.text.lower()
            for statement in sentence.statements:
                attribute, value = statement.attribute, statement.value
                if attribute in DESCRIBED and statement.polarity == "present":
                    assert any(w in text for w in words_for(language, attribute, value)), sentence
                    others = {v for v in VALUES[attribute] if v != value}
                    wrong = {w for v in others for w in words_for(language, attribute, v)}
                    right = words_for(language, attribute, value)
                    said = {w for w in wrong if w in text and not any(w in r for r in right)}
                    # "nodular, ill-defined": a word of another value within a right one is none.
                    assert not said, sentence
                    checked += 1
                if attribute in ("T", "N", "M"):
                    assert value.lower() in text
    assert checked > 30


@pytest.mark.parametrize("style", STYLES)
def test_size_is_the_longest_axis_in_mm(style):
    checked = 0
    for seed in SEEDS:
        patient = draw_patient(seed)
        drafted = [drafts(style)[seed], write_pathology(patient, STYLES[style], seed)]
        for draft in filter(None, drafted):
            for sentence in draft.sentences():
                sizes = [float(s.value) for s in sentence.statements if s.attribute == "size"]
                # "splenomegaly, 15 cm" is about no lesion.
                if sizes or sentence.lesion:
                    assert sorted(longest_mm(sentence.text)) == pytest.approx(sorted(sizes))
                    checked += len(sizes)
    assert checked > 20


@pytest.mark.parametrize("style", STYLES)
def test_statements_agree_with_the_patient(style):
    for draft in drafts(style):
        patient = draft.patient
        name = display_name(patient.organ) if patient.organ else ""
        lesions = {lesion.number: lesion for lesion in patient.lesions}
        looks = {(display_name(look.organ), look.finding) for look in patient.looks}
        for each in draft.statements:
            if each.organ == name and each.lesion in lesions and each.time == "current":
                lesion = lesions[each.lesion]
                true = {
                    "finding": each.value, "size": str(lesion.sizes_mm[0]), "shape": lesion.shape,
                    "boundary": lesion.boundary, "density": lesion.density, "depth": lesion.depth,
                    "others": lesion.other if each.polarity == "present" else each.value,
                }  # fmt: skip
                assert (each.part, each.value) == (lesion.part, true[each.attribute])
            if each.attribute == "finding" and each.polarity == "absent":
                assert (each.organ, each.value) not in looks
                assert not (each.organ == name and each.value in ("mass", "tumour"))
            if each.attribute == "finding" and each.time == "prior":
                assert (each.organ, each.value) not in looks
        assert {s.attribute for s in draft.statements if s.lesion == 0} >= {"age", "sex"}


def test_stage_follows_from_what_was_drawn():
    for seed in range(120):
        patient = draw_patient(seed)
        if patient.tnm:
            sizes = tuple(float(lesion.sizes_mm[0]) for lesion in patient.lesions)
            sites = {look.organ for look in patient.looks if look.finding == "metastasis"}
            extent = Extent(
                patient.organ, sizes, patient.depth or "wall", patient.vessel == "small",
                patient.vessel == "large", patient.nodes, frozenset(sites),
            )  # fmt: skip
            assert patient.tnm == stage(extent)
        assert all(lesion.part in SUB_ORGANS[patient.organ] for lesion in patient.lesions)


def test_british_letter_and_capitals():
    for seed in SEEDS[:9]:
        letter = make_case(seed, STYLES["letter"])
        both = letter.radiology + letter.pathology
        assert not re.search(r"tumor|\besophag|(?<!h)(?<!ha)\bhemangio|cecum(?<!caecum)", both)
        capitals = make_case(seed, STYLES["capitals"]).radiology
        assert capitals == capitals.upper()
        assert re.search(r"\r\n", capitals)
        assert not re.search(r"(?<!\r)\n", capitals)


@pytest.mark.parametrize("style", ["structured", "german"])
def test_identifiers_stand_where_the_truth_says(style):
    kinds = set()
    for seed in SEEDS[:12]:
        plain, marked = (make_case(seed, STYLES[style], planted) for planted in (False, True))
        assert plain.radiology in marked.radiology
        for text, found in zip(
            (marked.radiology, marked.pathology), marked.identifiers, strict=True
        ):
            for each in found:
                part = text[each.start : each.end]
                assert part == part.strip() != ""
                assert (each.kind != "record") or re.fullmatch(r"A?\d{6,8}", part)
                kinds.add(each.kind)
    assert kinds == ({*KINDS} if style == "structured" else {*KINDS} - {"e-mail"})
