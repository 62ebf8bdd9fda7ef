"""The compiled reasoning loop against a naive one: host-side Python that keeps no cache."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive_loop import (
    MODEL,
    SLOTS,
    VISUAL_TOKENS,
    NaiveLoop,
    Question,
    Run,
    Runs,
    next_logits,
    words,
)

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import empty_cache, unroll
from tumorchain_jax.models.tumorchain.model import TumorChain, abstract_params
from tumorchain_jax.reasoning.generate import DecodeState, Sampling, extend
from tumorchain_jax.reasoning.interleaved import (
    LoopConfig,
    Request,
    Result,
    reason,
)
from tumorchain_jax.reasoning.organ_matcher import NONE, OrganMatcher, build_matcher, character_span
from tumorchain_jax.reasoning.prompt import Chat, Interleaved
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, build_roi_prompt

pytestmark = pytest.mark.program

LOOP = LoopConfig(prompt_length=96, max_rounds=3, tokens_per_round=8, organs_per_round=2)
CONFIGS = {
    "all": replace(LOOP, history="all", sampling=Sampling(temperature=1.3, top_p=0.9)),
    "latest": replace(LOOP, history="latest"),
}
EVERY_CONFIG = pytest.mark.parametrize(
    "name", ["latest", pytest.param("all", marks=pytest.mark.system(haste=True))]
)
# What the model likes to say. Bladder, heart and lungs are never in a mask.
SAID = " spleen liver pancreas stomach colon aorta bladder heart lung left right kidney the ., 肝"
MASKED = ("spleen", "liver", "pancreas", "stomach", "colorectum", "aorta")
IN_MASK = tuple(map(ORGANS.index, (*MASKED, "kidney_left", "kidney_right")))
QUESTIONS = 27


# Questions, and the two loops side by side.


class World(NamedTuple):
    """A random model that likes to name organs, and the questions it is asked."""

    chat: Chat
    params: dict
    unrolled: dict
    matcher: OrganMatcher
    roi_prompt: RoiPrompt

    def reason(self, config: LoopConfig, request: Request) -> Result:
        """The compiled loop."""
        model = TumorChain(MODEL, unrolled=True)
        return reason(model, config, self.unrolled, self.matcher, self.roi_prompt, request)

    def question(self, seed: int) -> Question:
        """Random words, visual tokens, masks, ROI sizes, limits and key."""
        rng = np.random.default_rng(seed)
        rois = {}
        for organ in IN_MASK:
            rows = rng.choice(np.arange(MODEL.roi.offset, VISUAL_TOKENS), SLOTS, replace=False)
            if rng.random() < 0.8:
                rois[organ] = sorted(rows[: rng.integers(1, SLOTS + 1)].tolist())
        visited = tuple(rng.choice(list(rois), rng.integers(0, 2), replace=False).tolist())
        initial = [(organ, rois[organ]) for organ in visited]
        text = "".join(rng.choice(SAID.split(), rng.integers(1, 12)))
        prompt = self.chat.question(text, ["yes", "no"], MODEL.roi.global_tokens, initial)
        rounds = int(rng.choice([1, 2, 3, 3, 3, 3]))
        budget = int(rng.choice([0, rng.integers(1, 20), 100], p=[0.1, 0.2, 0.7]))
        visual_tokens = rng.normal(0, 2, (VISUAL_TOKENS, 24)).astype(np.float32)
        return Question(visual_tokens, prompt, rois, visited, rounds, budget, jax.random.key(seed))


@pytest.fixture(scope="module")
def world(chat: Chat) -> World:
    rng = np.random.default_rng(4)
    draw = lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32)
    params = unflatten(jax.tree.map(draw, abstract_params(MODEL)))
    decoder = params["decoder"]
    decoder["norm"]["weight"][:] = 1
    embedding, head = decoder["embed_tokens"]["embedding"], decoder["lm_head"]["kernel"]
    embedding *= 4
    head /= 5
    # The head likes what it says, and there the word after the last: else it would repeat itself.
    said = [chat.tokenizer.im_end, *chat.tokenizer.encode(SAID)]
    head[:, np.roll(said, -1)] += 0.2 * embedding[said].T + rng.normal(size=(24, len(said)))
    head[:, chat.tokenizer.im_end] *= 1.8
    # Pieces of characters it never says: no layer changes the first feature, so its row is a bias.
    # Bytes that are no text are the one thing the matcher sees otherwise than a search of the text.
    for layers, kernel in (("self_attn", "o_proj"), ("mlp", "down_proj")):
        decoder["layers"][layers][kernel]["kernel"][:, :, 0] = 0
    embedding[:, 0] = 4
    spellings = [spelling.decode(errors="replace") for spelling in chat.tokenizer.token_bytes]
    head[0] = [-15 if "\N{REPLACEMENT CHARACTER}" in spelling else 0 for spelling in spellings]

    params = jax.tree.map(jnp.asarray, params)
    unrolled = params | {"decoder": unroll(params["decoder"])}
    matcher = build_matcher(chat.tokenizer.token_bytes)
    return World(chat, params, unrolled, matcher, build_roi_prompt(chat))


@pytest.fixture(scope="module")
def runs(world: World) -> Runs:
    """What the naive loop does with the questions, by the name of a config."""

    @cache
    def run(name: str) -> list[Run]:
        loop = NaiveLoop(world.chat, world.params, CONFIGS[name])
        return [loop(world.question(seed)) for seed in range(QUESTIONS)]

    return run


def request_of(questions: Sequence[Question]) -> Request:
    """The batch that the compiled loop takes."""
    B, P = len(questions), LOOP.prompt_length
    prompt, prompt_valid = np.zeros((2, B, P), np.int32), np.zeros((B, P), bool)
    roi_index = np.zeros((B, len(ORGANS), SLOTS), np.int32)
    roi_valid, visited = roi_index > 0, np.zeros((B, len(ORGANS)), bool)
    for b, question in enumerate(questions):
        start = P - len(question.prompt)
        prompt[:, b, start:] = question.prompt.tokens, question.prompt.visual_index
        prompt_valid[b, start:] = True
        for organ, rows in question.rois.items():
            roi_index[b, organ, : len(rows)] = rows
            roi_valid[b, organ, : len(rows)] = True
        visited[b, list(question.visited)] = True
    request = Request(
        visual_tokens=np.stack([question.visual_tokens for question in questions]),
        roi_index=roi_index,
        roi_valid=roi_valid,
        prompt=Turn(*prompt, prompt_valid),
        visited=visited,
        rounds=np.array([question.rounds for question in questions], np.int32),
        token_budget=np.array([question.token_budget for question in questions], np.int32),
        keys=jnp.stack([question.key for question in questions]),
    )
    return jax.tree.map(jnp.asarray, request)


def rows_of(world: World, config: LoopConfig, questions: Sequence[Question]) -> list[Result]:
    """Run a batch on the device; the result of each row, on the host."""
    result = jax.device_get(world.reason(config, request_of(questions)))
    *by_round, rounds, stop_reason = result
    return [
        Result(*jax.tree.map(lambda leaf, b=b: leaf[:, b], by_round), rounds[b], stop_reason[b])
        for b in range(len(questions))
    ]


def assert_equal(chat: Chat, got: Result, run: Run) -> None:
    """A row of the compiled loop did what the naive loop did."""
    rounds, stop = run
    assert (got.rounds, got.stop_reason) == (len(rounds), stop)
    written = got.written
    for i, expected in enumerate(rounds):
        n = len(expected.tokens)
        assert written.length[i] == n
        assert written.tokens[i, :n].tolist() == expected.tokens
        assert written.complete[i] == expected.complete
        assert got.tokens_in[i] == expected.tokens_in
        for step, token in enumerate(expected.tokens):
            logits = expected.logits[step].astype(np.float64)
            log_probability = logits[token] - np.log(np.exp(logits).sum())
            assert abs(written.log_probabilities[i, step] - log_probability) < 1e-4
        assert not written.tokens[i, n:].any()
        assert not written.log_probabilities[i, n:].any()

        text = chat.tokenizer.decode_bytes(expected.tokens)
        named = np.flatnonzero(got.matches.first[i] != NONE).tolist()
        spans = {o: (int(got.matches.first[i, o]), int(got.matches.end[i, o])) for o in named}
        assert {o: character_span(text, *span) for o, span in spans.items()} == expected.spans
        assert np.flatnonzero(got.looked_at[i]).tolist() == sorted(expected.looked_at)
    beyond = (*written, got.tokens_in, got.looked_at, got.matches.first != NONE)
    assert not any(leaf[len(rounds) :].any() for leaf in beyond)


@EVERY_CONFIG
def test_equals_the_naive_loop(world: World, runs: Runs, name: str) -> None:
    for start in range(0, QUESTIONS, 3):
        batch = range(start, start + 3)
        rows = rows_of(world, CONFIGS[name], [world.question(seed) for seed in batch])
        for seed, row in zip(batch, rows, strict=True):
            assert_equal(world.chat, row, runs(name)[seed])


def test_extend_gives_the_logits_of_the_whole_sequence(world: World) -> None:
    """After the prompt, an ROI turn and a token: those of a decoder without a cache."""
    question = world.question(3)
    organ, roi = next(iter(question.rois.items()))
    pieces = [question.prompt, world.chat.look_again([(organ, roi)]), words([7])]
    decoder = MODEL.decoder
    state = DecodeState(
        empty_cache(decoder, 1, 200, jnp.float32), jnp.zeros(1, jnp.int32), jnp.zeros((1, 512))
    )
    read = jax.jit(partial(extend, TumorChain(MODEL, unrolled=True)))
    sequence = Interleaved()
    for piece in pieces:
        sequence = sequence + piece
        row = jnp.asarray([piece.tokens]), jnp.asarray([piece.visual_index])
        turn = Turn(*row, jnp.ones((1, len(piece)), bool))
        state = read(world.unrolled, question.visual_tokens[None], state, turn)
        expected = next_logits(world.params, question.visual_tokens, sequence)
        np.testing.assert_allclose(state.logits[0], expected, atol=1e-4, rtol=0)
    assert state.length == len(sequence)


@pytest.mark.system(haste=True)
@EVERY_CONFIG
def test_a_batch_of_three_equals_three_batches_of_one(world: World, runs: Runs, name: str) -> None:
    for start in range(0, 9, 3):
        questions = [world.question(seed) for seed in range(start, start + 3)]
        together = rows_of(world, CONFIGS[name], questions)
        for seed, question in enumerate(questions, start):
            (alone,) = rows_of(world, CONFIGS[name], [question])
            assert_equal(world.chat, alone, runs(name)[seed])
            leaves = jax.tree.leaves(alone), jax.tree.leaves(together[seed - start])
            for got, expected in zip(*leaves, strict=True):
                np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)


@EVERY_CONFIG
def test_the_questions_reach_every_case(world: World, runs: Runs, name: str) -> None:
    seen: Counter = Counter()
    for seed, (rounds, stop) in enumerate(runs(name)):
        question = world.question(seed)
        seen[stop] += 1
        seen["organs enter in mid-decode"] += len(rounds) > 1
        seen["and again"] += len(rounds) > 2
        shown = set(question.visited)
        for done in rounds:
            named = set(done.spans)
            seen["ended by the model"] += done.complete
            seen["cut at tokens_per_round"] += len(done.tokens) == LOOP.tokens_per_round
            seen["nothing written"] += not done.tokens
            seen["two organs at once"] += len(done.looked_at) == 2
            seen["more organs than are looked at"] += len(named & set(question.rois) - shown) > 2
            seen["not in the mask"] += not named <= set(question.rois)
            seen["in the prompt"] += not named.isdisjoint(question.visited)
            seen["looked at before"] += not named.isdisjoint(shown.difference(question.visited))
            shown.update(done.looked_at)
    assert all(seen.values()), seen
    assert seen["organs enter in mid-decode"] > QUESTIONS / 2


def test_twenty_batches_are_one_program_that_never_touches_the_host(world: World) -> None:
    requests = [request_of([world.question(seed + i) for i in range(3)]) for seed in range(20)]
    programs = reason._cache_size()
    with jax.transfer_guard("disallow"):
        results = [world.reason(CONFIGS["all"], request) for request in requests]
    assert reason._cache_size() <= programs + 1
    assert len({result.rounds.tobytes() for result in jax.device_get(results)}) > 5

    on_host = requests[0]._replace(visited=np.asarray(requests[0].visited))
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed host-to-"):
        world.reason(CONFIGS["all"], on_host)
